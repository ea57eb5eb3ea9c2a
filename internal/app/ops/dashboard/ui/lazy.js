// Parts of pages that are loaded when they are shown for the first time.
import { html, useState, useEffect } from "./lib.js";

// lazy is the component of a name in a module that load imports.
function lazy(load, name) {
  let found = null;
  return props => {
    const [Part, set] = useState(() => found), [error, setError] = useState("");
    useEffect(() => {
      let over = false;
      if (!found) load().then(m => { found = m[name]; if (!over) set(() => found); }, e => !over && setError(e.message));
      return () => { over = true; };
    }, []);
    if (error) return html`<p class="empty">This part of the page cannot be loaded: ${error}</p>`;
    return Part ? html`<${Part} ...${props} />` : html`<p class="empty">Loading.</p>`;
  };
}

export const HeatMap = lazy(() => import("./pages/maps.js"), "HeatMap");
export const PageMap = lazy(() => import("./pages/maps.js"), "PageMap");
export const Flows = lazy(() => import("./pages/maps.js"), "Flows");
export const Timeline = lazy(() => import("./pages/timeline.js"), "Timeline");
