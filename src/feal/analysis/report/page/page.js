"use strict";
// Tabs, and figures that are drawn when they come into sight.
const report = (() => {
  const CONFIG = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["lasso2d", "select2d"] };
  const NARROW = 640;
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

  // Wide figures keep their margins for words; a phone has no room for a legend beside the drawing.
  function fitted(layout, width) {
    const fit = { ...layout, autosize: true, uirevision: "reader" };
    delete fit.width;
    if (width < NARROW) {
      fit.margin = { ...layout.margin, l: Math.min(layout.margin?.l ?? 80, 56), r: Math.min(layout.margin?.r ?? 80, 12) };
    }
    return fit;
  }

  function draw(place) {
    const drawing = drawings[place.dataset.figure];
    if (!drawing) return;
    place.dataset.drawn = drawing.stamp;
    Plotly.react(place, drawing.data, fitted(drawing.layout, place.clientWidth), CONFIG);
  }

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

  // On paper there are no tabs: all panels are shown, so all figures must be drawn, as wide as the sheet.
  window.addEventListener("beforeprint", () => {
    tabs().forEach((tab) => { panel(tab).hidden = false; });
    document.querySelectorAll(".plot").forEach((place) => {
      if (place.dataset.drawn === undefined) draw(place);
      Plotly.relayout(place, { width: Math.min(place.clientWidth || 660, 660) });
    });
  });
  window.addEventListener("afterprint", () => {
    document.querySelectorAll(".plot").forEach((place) => Plotly.relayout(place, { width: null, autosize: true }));
    const tab = selected();
    if (tab) select(tab, { remember: false });
  });

  // New contents in the place of the old: what the reader opened, chose and zoomed stays, and so does the place.
  function renew(html, figures) {
    const main = document.getElementById("contents");
    const fresh = new DOMParser().parseFromString(html, "text/html").body;
    const chosen = selected()?.getAttribute("aria-controls");
    const focused = document.activeElement?.id;
    const top = window.scrollY;
    for (const open of main.querySelectorAll("details[id]")) {
      const same = fresh.querySelector(`#${CSS.escape(open.id)}`);
      if (same) same.open = open.open;
    }
    for (const place of main.querySelectorAll(".plot[id]")) {
      fresh.querySelector(`#${CSS.escape(place.id)}`)?.replaceWith(place);
    }
    drawings = figures;
    main.style.minHeight = `${main.offsetHeight}px`;
    main.replaceChildren(...fresh.childNodes);
    const tab = named(chosen) ?? tabs()[0];
    if (tab) select(tab, { remember: false });
    begin();
    main.style.minHeight = "";
    window.scrollTo({ top, behavior: "instant" });
    if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
  }

  begin();
  return { renew };
})();
