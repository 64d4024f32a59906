"use strict";
// Tabs, and charts that are drawn when they come into sight or when the page has nothing else to do.
const report = (() => {
  const NARROW = 640;
  const ACTIONS = { export: true, source: false, compiled: false, editor: false };
  let charts = JSON.parse(document.getElementById("charts").textContent);

  const tabs = () => [...document.querySelectorAll('[role="tab"]')];
  const panel = (tab) => document.getElementById(tab.getAttribute("aria-controls"));
  const selected = () => tabs().find((tab) => tab.getAttribute("aria-selected") === "true");
  const places = () => [...document.querySelectorAll(".plot")];

  function select(tab, { remember = true } = {}) {
    for (const other of tabs()) {
      other.setAttribute("aria-selected", String(other === tab));
      other.tabIndex = other === tab ? 0 : -1;
      panel(other).hidden = other !== tab;
    }
    if (remember) history.replaceState(null, "", `#${tab.getAttribute("aria-controls")}`);
  }

  function findTab(name) {
    return tabs().find((tab) => tab.getAttribute("aria-controls") === name);
  }

  document.addEventListener("click", (event) => {
    const tab = event.target.closest('[role="tab"]');
    if (tab) select(tab);
  });
  document.addEventListener("keydown", (event) => {
    if (!event.target.matches('[role="tab"]')) return;
    const all = tabs();
    const here = all.indexOf(event.target);
    const to = { ArrowRight: here + 1, ArrowLeft: here - 1, Home: 0, End: all.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const tab = all[(to + all.length) % all.length];
    select(tab);
    tab.focus();
  });
  window.addEventListener("hashchange", () => {
    const tab = findTab(location.hash.slice(1));
    if (tab) select(tab, { remember: false });
  });

  // A hidden section has no width: its charts are drawn for that of the page.
  const pageWidth = () => {
    const main = document.getElementById("content");
    const style = getComputedStyle(main);
    return main.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
  };

  // Panels side by side, or one below the other where the page is narrow; as `Chart.to_spec` in Python.
  function fit(spec, width) {
    const { columns, margin, entry, panel } = spec.usermeta;
    const across = width < NARROW ? 1 : columns;
    const inner = Math.min(panel, Math.max(120, Math.floor((width - 12) / across) - margin));
    for (const tier of spec.vconcat) {
      tier.columns = across;
      for (const part of tier.concat) part.width = inner;
    }
    spec.config.font = getComputedStyle(document.body).fontFamily;
    spec.config.title.fontWeight = "bold";
    spec.config.legend.columns = Math.max(1, Math.floor(Math.min(width, across * (inner + margin)) / entry));
    return spec;
  }

  // Menus are the browser's own, which keys and thumbs can use; what the reader chose before stays.
  function makeMenus(place, title, spec) {
    const bar = place.previousElementSibling;
    const before = Object.fromEntries([...bar.querySelectorAll("select")].map((menu) => [menu.name, menu.value]));
    const focused = document.activeElement?.name;
    const bound = (spec.params ?? []).filter((param) => param.bind?.input === "select");
    bar.replaceChildren(...bound.map((param) => {
      const list = document.createElement("select");
      const { options, labels, name } = param.bind;
      list.name = param.name;
      list.setAttribute("aria-label", `${title}: ${name.replace(/[ :]+$/, "")}`);
      list.append(...options.map((value, at) => new Option(labels[at], value)));
      if (options.includes(before[param.name])) param.value = before[param.name];
      list.value = param.value;
      list.addEventListener("change", () => place.view.signal(param.name, list.value).runAsync());
      delete param.bind;
      const label = document.createElement("label");
      label.append(name, list);
      return label;
    }));
    if (focused) bar.querySelector(`select[name="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  }

  async function unpack(chart) {
    if (!chart.spec) {
      const bytes = Uint8Array.from(atob(chart.packed), (letter) => letter.charCodeAt(0));
      const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
      chart.spec = await new Response(stream).json();
    }
    return structuredClone(chart.spec);
  }

  async function draw(place) {
    const chart = charts[place.dataset.plot];
    if (!chart) return;
    const whole = place.parentElement.clientWidth || pageWidth();
    const key = `${chart.digest} ${Math.round(whole)}`;
    if (place.dataset.drawn === key) return;
    place.dataset.drawn = key;
    const isNarrow = whole < NARROW;
    const spec = fit(await unpack(chart), isNarrow ? whole : whole - 38);
    if (place.dataset.drawn !== key) return;
    makeMenus(place, chart.title, spec);
    place.view?.finalize();
    // The policy of the page forbids code from strings, so expressions are interpreted.
    const options = { ast: true, renderer: "svg", actions: isNarrow ? false : ACTIONS, downloadFileName: place.dataset.plot };
    place.view = (await vegaEmbed(place, spec, options)).view;
    place.style.minHeight = "0";
  }

  const sight = new IntersectionObserver(
    (entries) => entries.filter((entry) => entry.isIntersecting).forEach(({ target }) => draw(target)),
    { rootMargin: "300px" },
  );

  // Printing does not wait, so what is out of sight is drawn while the reader reads.
  async function drawAll() {
    for (const place of places()) {
      await new Promise((resolve) => setTimeout(resolve, 50));
      await draw(place);
    }
    document.body.dataset.ready = "true";
  }

  function start() {
    const tab = findTab(location.hash.slice(1)) ?? selected() ?? tabs()[0];
    if (tab) select(tab, { remember: false });
    sight.disconnect();
    places().forEach((place) => sight.observe(place));
  }

  let resized;
  window.addEventListener("resize", () => {
    clearTimeout(resized);
    resized = setTimeout(() => places().filter((place) => place.offsetParent).forEach(draw), 150);
  });
  document.addEventListener("click", (event) => {
    if (event.target.closest('[role="tab"]')) places().filter((place) => place.offsetParent).forEach(draw);
  });
  window.addEventListener("load", () => setTimeout(drawAll, 500));

  // New content in the place of the old: what the reader opened and chose stays, and so does the position.
  function update(html, fresh) {
    const main = document.getElementById("content");
    const next = new DOMParser().parseFromString(html, "text/html").body;
    const chosen = selected()?.getAttribute("aria-controls");
    const focused = document.activeElement?.id;
    const anchor = [...main.querySelectorAll("figure[id], details[id]")].find(
      (part) => part.offsetParent !== null && part.getBoundingClientRect().bottom > 0,
    );
    const top = anchor?.getBoundingClientRect().top;
    const scrolled = window.scrollY;
    for (const open of main.querySelectorAll("details[id]")) {
      const same = next.querySelector(`#${CSS.escape(open.id)}`);
      if (same) same.open = open.open;
    }
    for (const canvas of main.querySelectorAll(".canvas")) {
      next.querySelector(`#${CSS.escape(canvas.id)}`)?.replaceWith(canvas);
    }
    charts = fresh;
    main.style.minHeight = `${main.offsetHeight}px`;
    main.replaceChildren(...next.childNodes);
    const tab = findTab(chosen) ?? tabs()[0];
    if (tab) select(tab, { remember: false });
    start();
    main.style.minHeight = "";
    const there = scrolled && anchor && document.getElementById(anchor.id);
    const by = there ? there.getBoundingClientRect().top - top : scrolled - window.scrollY;
    window.scrollBy({ top: by, behavior: "instant" });
    if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
    setTimeout(drawAll, 500);
  }

  start();
  return { update };
})();
