"use strict";
// Follows the runs: asks how they stand, and for new contents when there are any.
(() => {
  const EVERY = 1500;
  const place = document.getElementById("progress");
  let version = document.body.dataset.live;

  function element(name, attributes, ...children) {
    const made = Object.assign(document.createElement(name), attributes);
    made.append(...children);
    return made;
  }

  function line(run) {
    return element("li", {}, element("span", {}, run.name), element("span", { className: "faint" }, run.doing));
  }

  function tell(progress) {
    const where = place.querySelector(".where");
    where.className = "where";
    if (where.textContent !== progress.where) where.textContent = progress.where;
    const bar = element("progress", { max: Math.max(progress.all, 1), value: progress.done });
    bar.setAttribute("aria-label", progress.where);
    const list = element("ul", {}, ...progress.runs.map(line));
    place.replaceChildren(where, ...(progress.all ? [bar, list] : []));
  }

  function lost() {
    const where = place.querySelector(".where");
    where.className = "where lost";
    where.textContent = "The server does not answer: what you see may be old. Start feal watch again on the same port.";
  }

  async function look() {
    try {
      const answer = await fetch("progress.json", { cache: "no-store" });
      if (!answer.ok) throw new Error(answer.statusText);
      const progress = await answer.json();
      tell(progress);
      if (progress.version !== version) {
        const contents = await (await fetch("contents.json", { cache: "no-store" })).json();
        report.renew(contents.html, contents.figures);
        version = contents.version;
      }
    } catch (error) {
      lost();
    }
    setTimeout(look, EVERY);
  }

  look();
})();
