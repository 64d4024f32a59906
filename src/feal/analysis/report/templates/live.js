"use strict";
// Follows the runs: polls their status, and fetches new content when there is any.
(() => {
  const INTERVAL = 1500;
  const place = document.getElementById("status");
  let version = document.body.dataset.live;

  function element(name, attributes, ...children) {
    const made = Object.assign(document.createElement(name), attributes);
    made.append(...children);
    return made;
  }

  function line(run) {
    return element("li", {}, element("span", {}, run.name), element("span", { className: "faint" }, run.detail));
  }

  function showStatus(status) {
    const summary = place.querySelector(".summary");
    summary.className = "summary";
    if (summary.textContent !== status.summary) summary.textContent = status.summary;
    const bar = element("progress", { max: Math.max(status.all, 1), value: status.done });
    bar.setAttribute("aria-label", status.summary);
    const list = element("ul", {}, ...status.runs.map(line));
    place.replaceChildren(summary, ...(status.all ? [bar, list] : []));
  }

  function showLost() {
    const summary = place.querySelector(".summary");
    summary.className = "summary lost";
    summary.textContent = "The server does not respond: this report may be outdated. Restart feal watch on the same port.";
  }

  async function poll() {
    try {
      const reply = await fetch("status.json", { cache: "no-store" });
      if (!reply.ok) throw new Error(reply.statusText);
      const status = await reply.json();
      showStatus(status);
      if (status.version !== version) {
        const content = await (await fetch("content.json", { cache: "no-store" })).json();
        report.update(content.html, content.charts);
        version = content.version;
      }
    } catch (error) {
      showLost();
    }
    setTimeout(poll, INTERVAL);
  }

  poll();
})();
