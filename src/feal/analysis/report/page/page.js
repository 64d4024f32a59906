"use strict";
// Tabs, and figures that are drawn when they come into sight.
const report = (() => {
  const CONFIG = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["lasso2d", "select2d"] };
  const NARROW = 640;
  const HEADING = 34;
  let drawings = JSON.parse(document.getElementById("figures").textContent);

  const tabs = () => [...document.querySelectorAll('[role="tab"]')];
  const panel = (tab) => document.getElementById(tab.getAttribute("aria-controls"));
  const selected = () => tabs().find((tab) => tab.getAttribute("aria-selected") === "true");

  function select(tab, { remember = true } = {}) {
    for (const other of tabs()) {
      other.setAttribute("aria-selected", String(other === tab));
      other.tabIndex = other === tab ? 0 : -1;
      panel(other).hidden = other !== tab;
    }
    if (remember) history.replaceState(null, "", `#${tab.getAttribute("aria-controls")}`);
  }

  function named(name) {
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
    const tab = named(location.hash.slice(1));
    if (tab) select(tab, { remember: false });
  });

  // A figure may say what `Plotly.relayout` shall change for a narrow place (`meta.narrow`) and back (`meta.wide`).
  function arrangement(layout, place) {
    const change = { ...(layout.meta?.[place.clientWidth < NARROW ? "narrow" : "wide"] ?? {}) };
    if (!layout.updatemenus?.length) return change;
    // Menus stand above the drawing as the browser's own, which keys and thumbs can work: their room is not needed.
    for (const key of Object.keys(change)) if (key.startsWith("updatemenus")) delete change[key];
    const spare = (change["margin.t"] ?? layout.margin?.t ?? 100) - HEADING;
    if (spare > 0 && (change.height ?? layout.height)) {
      change.height = (change.height ?? layout.height) - spare;
      change["margin.t"] = HEADING;
    }
    return change;
  }

  function changed(layout, change) {
    const copy = structuredClone(layout);
    for (const [path, value] of Object.entries(change)) {
      const names = path.replaceAll("[", ".").replaceAll("]", "").split(".");
      const last = names.pop();
      names.reduce((inside, name) => (inside[name] ??= {}), copy)[last] = value;
    }
    return copy;
  }

  function menus(place, drawing) {
    const bar = place.previousElementSibling;
    const before = [...bar.querySelectorAll("select")].map((menu) => menu.value);
    const made = (drawing.layout.updatemenus ?? []).map((menu, number) => {
      const list = document.createElement("select");
      list.setAttribute("aria-label", `${drawing.title}: choice ${number + 1}`);
      list.append(...menu.buttons.map((button) => new Option(button.label, button.label)));
      if (menu.buttons.some((button) => button.label === before[number])) list.value = before[number];
      list.addEventListener("change", () => choose(place, menu.buttons[list.selectedIndex]));
      return [list, menu.buttons];
    });
    const focused = [...bar.children].indexOf(document.activeElement);
    bar.replaceChildren(...made.map(([list]) => list));
    if (focused >= 0) bar.children[focused]?.focus({ preventScroll: true });
    return made.filter(([list]) => list.selectedIndex > 0).map(([list, buttons]) => buttons[list.selectedIndex]);
  }

  function choose(place, button) {
    return Plotly[button.method](place, ...structuredClone(button.args));
  }

  // Unpacked when it is drawn, and kept: a page of many figures opens as fast as one of few.
  async function unpacked(name) {
    const entry = drawings[name];
    if (entry && !entry.layout) {
      const bytes = Uint8Array.from(atob(entry.packed), (letter) => letter.charCodeAt(0));
      const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
      Object.assign(entry, await new Response(stream).json());
    }
    return entry;
  }

  async function draw(place) {
    const stamp = drawings[place.dataset.figure]?.stamp;
    if (!stamp) return;
    place.dataset.drawn = stamp;
    const drawing = await unpacked(place.dataset.figure);
    if (drawing?.stamp === stamp) await show(place, drawing);
  }

  async function show(place, drawing) {
    place.dataset.drawn = drawing.stamp;
    const chosen = menus(place, drawing);
    const layout = changed(drawing.layout, arrangement(drawing.layout, place));
    place.dataset.narrow = String(place.clientWidth < NARROW);
    delete layout.updatemenus;
    delete layout.width;
    layout.autosize = true;
    layout.uirevision = "reader";
    await Plotly.react(place, structuredClone(drawing.data), layout, CONFIG);
    for (const button of chosen) await choose(place, button);
    place.style.minHeight = "";
  }

  window.addEventListener("resize", () => document.querySelectorAll(".plot[data-drawn]").forEach((place) => {
    const narrow = String(place.clientWidth < NARROW);
    if (!place.clientWidth || !place.dataset.narrow || place.dataset.narrow === narrow) return;
    place.dataset.narrow = narrow;
    const change = arrangement(drawings[place.dataset.figure].layout, place);
    // A height of its own takes a figure's mind off the width that there is.
    Plotly.relayout(place, { ...change, width: null, autosize: true });
  }));

  const sight = new IntersectionObserver(
    (entries) => entries.filter((entry) => entry.isIntersecting).forEach(({ target }) => {
      if (target.dataset.drawn !== drawings[target.dataset.figure]?.stamp) draw(target);
    }),
    { rootMargin: "300px" },
  );

  function begin() {
    const tab = named(location.hash.slice(1)) ?? selected() ?? tabs()[0];
    if (tab) select(tab, { remember: false });
    sight.disconnect();
    document.querySelectorAll(".plot").forEach((place) => sight.observe(place));
  }

  // On paper there are no tabs: all panels are shown, so all figures must be drawn, as wide as the sheet. Printing
  // does not wait, so what is packed is unpacked while the reader reads.
  const PAPER = 660;
  let before;
  window.addEventListener("beforeprint", () => {
    before = selected();
    tabs().forEach((tab) => { panel(tab).hidden = false; });
    document.querySelectorAll(".plot").forEach((place) => {
      const drawing = drawings[place.dataset.figure];
      if (place.dataset.narrow === undefined && drawing?.layout) show(place, drawing);
      if (place.dataset.narrow !== undefined) Plotly.relayout(place, { width: Math.min(place.clientWidth || PAPER, PAPER) });
    });
  });
  window.addEventListener("afterprint", () => {
    document.querySelectorAll(".plot[data-narrow]").forEach((place) => {
      Plotly.relayout(place, { width: null, autosize: true });
    });
    if (before) select(before, { remember: false });
  });
  window.addEventListener("load", () => setTimeout(async () => {
    for (const name of Object.keys(drawings)) await unpacked(name);
    document.body.dataset.ready = "true";
  }, 500));

  // New contents in the place of the old: what the reader opened, chose and zoomed stays, and so does the place.
  function renew(html, figures) {
    const main = document.getElementById("contents");
    const fresh = new DOMParser().parseFromString(html, "text/html").body;
    const chosen = selected()?.getAttribute("aria-controls");
    const focused = document.activeElement?.id;
    const anchor = [...main.querySelectorAll("figure[id], details[id]")].find(
      (part) => part.offsetParent !== null && part.getBoundingClientRect().bottom > 0,
    );
    const top = anchor?.getBoundingClientRect().top;
    const scrolled = window.scrollY;
    for (const open of main.querySelectorAll("details[id]")) {
      const same = fresh.querySelector(`#${CSS.escape(open.id)}`);
      if (same) same.open = open.open;
    }
    for (const canvas of main.querySelectorAll(".canvas")) {
      fresh.querySelector(`#${CSS.escape(canvas.id)}`)?.replaceWith(canvas);
    }
    drawings = figures;
    main.style.minHeight = `${main.offsetHeight}px`;
    main.replaceChildren(...fresh.childNodes);
    const tab = named(chosen) ?? tabs()[0];
    if (tab) select(tab, { remember: false });
    begin();
    main.style.minHeight = "";
    const there = scrolled && anchor && document.getElementById(anchor.id);
    const by = there ? there.getBoundingClientRect().top - top : scrolled - window.scrollY;
    window.scrollBy({ top: by, behavior: "instant" });
    if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
  }

  begin();
  return { renew };
})();
