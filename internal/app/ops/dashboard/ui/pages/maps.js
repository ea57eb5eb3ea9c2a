// The heat map of the agents of a swarm, the map of its pages, and the flows between tiers.
import { html, useState, num, int, rate, bytes, seconds, time, clock, Table, Empty, Link } from "../lib.js";
import { useJSON } from "../data.js";
import { Raster, Scale, rgb, mix, useScheme } from "../raster.js";

// The scale is viridis: it is even for the eye, also for people who see few colors, and in gray. The
// far end of the background is the high one.
const viridis = [[68, 1, 84], [72, 40, 120], [62, 74, 137], [49, 104, 142], [38, 130, 142], [31, 158, 137], [53, 183, 121], [109, 205, 89], [180, 222, 44], [253, 231, 37]];
function shade(number, dark) {
  const x = ((dark ? number : 255 - number) / 255) * (viridis.length - 1), i = Math.min(viridis.length - 2, Math.floor(x));
  return mix(viridis[i], viridis[i + 1], x - i);
}

const states = ["", "of the part that is on the device", "of an earlier moment: not resident", "not resident", "no value", "no answer"];

// spread makes a list of runs [count, value] one value for each cell.
function spread(runs, n) {
  const out = new Uint8Array(n);
  let at = 0;
  for (const [count, value] of runs) {
    out.fill(value, at, at + count);
    at += count;
  }
  return out;
}

const sizes = [[64, "coarse"], [128, "medium"], [256, "fine"], [512, "finest"]];

export function HeatMap({ swarm }) {
  const [variable, setVariable] = useState(""), [value, setValue] = useState("mean"), [size, setSize] = useState(256), dark = useScheme();
  const { data: h, error } = useJSON(`swarms/${encodeURIComponent(swarm.id)}/heat?variable=${encodeURIComponent(variable)}&value=${value}&size=${size}`, 1);
  if (!h) return html`<p class="empty">${error ? `No picture: ${error}` : "Asking the shards."}</p>`;
  if (h.parts.every(p => p.error)) return html`<${Empty}>${h.parts.length ? `No shard shows its agents: ${h.parts[0].error}.` : "The swarm has no shard yet."}<//>`;
  const cells = Uint8Array.from(atob(h.cells), c => c.charCodeAt(0)), marks = spread(h.states, cells.length), n = cells.length;
  const known = new Array(n);
  for (const p of h.parts) known.fill(p, p.first, p.first + p.cells);
  const real = i => h.least + ((h.most - h.least) * cells[i]) / 255;
  const columns = h.map ? h.map.columns : h.grid && h.grid.width / h.parts[0].per, rows = h.map && n / columns;
  const ratio = h.map?.width ? h.map.width / h.map.height : h.grid ? h.grid.width / h.grid.height : h.map ? 2 : 1;
  const between = (k, of, side) => `${num((side * k) / of)} to ${num((side * (k + 1)) / of)}`;
  const place = i => {
    const x = i % columns, y = Math.floor(i / columns);
    if (h.map.width) return `x ${between(x, columns, h.map.width)}, y ${between(rows - 1 - y, rows, h.map.height)}`;
    const first = y * h.map.per, tick = h.map.tick - columns + 1 + x;
    return `${tick > 0 ? `tick ${int(tick)}` : "before the first tick"}, ${h.map.per > 1 ? `agents ${int(first)} to ${int(Math.min(swarm.agents, first + h.map.per) - 1)}` : `agent ${int(first)}`}`;
  };
  const agents = (i, end = i) => {
    if (h.map) return end > i ? `${place(i)} up to ${place(end)}` : place(i);
    const p = known[i], q = known[end], last = q.agent + Math.min(q.agents, (end - q.first + 1) * q.per) - 1;
    const from = p.agent + (i - p.first) * p.per;
    if (h.grid) return `row ${int(Math.floor(from / h.grid.width))}, ${last > from ? `columns ${int(from % h.grid.width)} to ${int(last % h.grid.width)}` : `column ${int(from % h.grid.width)}`}`;
    return `agents ${int(from)} to ${int(last)}`;
  };
  const unit = h.map?.width ? " agents" : ` ${h.variable}`;
  const shown = i => marks[i] <= 2;
  const text = i => `${agents(i)}: ${shown(i) ? `${num(h.map ? Math.round(real(i)) : real(i))}${h.map ? unit : ""}${marks[i] ? `, ${states[marks[i]]}` : ""}` : `${states[marks[i]]}${known[i].error ? `, ${known[i].error}` : ""}`}`;
  const soft = rgb("--soft"), line = rgb("--line"), bad = rgb("--bad");
  const paint = (i, x, y) => {
    if (h.map && marks[i] <= 1 && !cells[i] && h.least === 0) return soft; // nobody is there
    if (marks[i] <= 1) return shade(cells[i], dark);
    if (marks[i] === 2) return mix(shade(cells[i], dark), line, (x + y) % 2 ? 0.7 : 0.2); // a pattern besides the color
    if (marks[i] === 5) return (x + y) % 2 ? bad : soft;
    return marks[i] === 3 && (x + y) % 2 ? line : soft;
  };
  const about = h.map?.width && n === 1 ? "The agents have no places before the first tick or observation. "
    : h.map?.width ? `A box of ${num(h.map.width)} by ${num(h.map.height)}, in ${num(n)} cells. A cell shows how many agents are there. `
    : h.map ? `A row has ${h.map.per > 1 ? `up to ${num(h.map.per)} agents` : "an agent"}, and a column a tick, the last one tick ${int(h.map.tick)}. A cell shows how many ${h.variable} there are. Ticks are recorded while somebody looks, up to ${int(columns)} between two pictures. `
    : `${h.grid ? `A grid of ${int(h.grid.width)} columns and ${int(h.grid.height)} rows. ` : ""}${num(n)} cells of up to ${num(Math.max(...h.parts.map(p => p.per)))} agents. `;
  const step = Math.max(1, Math.ceil(n / 40)), ranges = [];
  for (let i = 0; i < n; i += step) ranges.push([i, Math.min(n, i + step) - 1]);
  const over = ([from, end]) => {
    let sum = 0, count = 0;
    for (let i = from; i <= end; i++) if (shown(i)) { sum += real(i); count++; }
    return count ? num(sum / count) : "–";
  };
  const of = state => marks.reduce((k, m) => k + (m === state), 0), took = h.parts.reduce((k, p) => k + (p.took_ns || 0), 0), oldest = h.parts.map(p => p.at).filter(Boolean).sort()[0];
  return html`<p class="filter">
      <label>Variable <select value=${h.variable} onChange=${e => setVariable(e.target.value)}>${h.variables.map(v => html`<option value=${v}>${v}</option>`)}</select></label>
      ${!h.map && html`<label>Value <select value=${value} onChange=${e => setValue(e.target.value)}><option value="mean">mean</option><option value="least">least</option><option value="most">greatest</option></select></label>`}
      <label>Cells <select value=${size} onChange=${e => setSize(Number(e.target.value))}>${sizes.map(([s, name]) => html`<option value=${s}>${name}</option>`)}</select></label></p>
    ${error && html`<p class="warn">${error}</p>`}
    <${Raster} n=${n} paint=${paint} text=${text} label=${h.map ? `Picture of ${h.variable}` : `Heat map of ${h.variable}`} columns=${columns} ratio=${ratio} />
    <${Scale} paint=${x => shade(x, dark)} low=${num(h.least)} high=${num(h.most)} />
    <p class="dim">${about}${of(2) + of(3) > 0 ? `${num(of(2) + of(3))} cells are not resident: they are dotted, and none is moved. ` : ""}${of(5) > 0 ? `${h.parts.filter(p => p.error).length} shards do not answer. ` : ""}Drawn in ${seconds(took / 1e9)} of the shards${oldest ? ` at ${clock(time(oldest))}` : ""}.</p>
    <details><summary>Show as table<span class="quiet">: heat map</span></summary><${Table} caption=${`${h.variable}, ${value} of cells in ${ranges.length} ranges`} rows=${ranges} columns=${[
      { name: "Agents", value: r => agents(r[0], r[1]) }, { name: `Mean of the ${value === "most" ? "greatest" : value} values`, number: true, value: over }, { name: "Note", value: r => states[Math.max(...marks.subarray(r[0], r[1] + 1))] || "–" } ]} /></details>`;
}

const order = ["gpu", "cpu", "nvme", "ssd", "hdd"];
const rank = t => { const i = order.indexOf(t.toLowerCase()); return i < 0 ? order.length : i; };
const color = t => `--c${Math.min(rank(t), 7)}`;
const age = k => (k < 0 ? "not known" : k === 0 ? "under 1 s" : `under ${seconds(2 ** k)}`);

// PageMap shows each page of a swarm as a cell.
export function PageMap({ swarms }) {
  const [id, choose] = useState(""), w = swarms.find(x => x.id === id) || swarms[0];
  useScheme();
  const { data: m, error } = useJSON(w ? `swarms/${encodeURIComponent(w.id)}/pages?size=256` : null, 2);
  if (!w) return html`<${Empty}>No swarm, and so no pages.<//>`;
  const select = html`<p class="filter"><label>Swarm <select value=${w.id} onChange=${e => choose(e.target.value)}>${swarms.map(x => html`<option value=${x.id}>${x.name}${x.name === x.id ? "" : ` (${x.id})`}</option>`)}</select></label></p>`;
  if (!m) return html`${select}<p class="empty">${error ? `No map: ${error}` : "Asking the shards."}</p>`;
  const cells = []; // [part, index in it, tier, age]
  for (const p of m.parts) {
    let at = 0;
    if (p.error) cells.push([p, 0, -2, -1]);
    for (const [count, tier, old] of p.runs || []) for (let k = 0; k < count; k++) cells.push([p, at++, tier, old]);
  }
  const soft = rgb("--soft"), bad = rgb("--bad"), bg = rgb("--bg"), colors = {};
  const base = t => (colors[t] ??= rgb(color(t)));
  const paint = (i, x, y) => {
    const [p, , tier, old] = cells[i];
    if (tier === -2) return (x + y) % 2 ? bad : soft;
    return tier < 0 ? soft : mix(base(p.tiers[tier]), bg, Math.min(0.65, 0.08 * Math.max(0, old)));
  };
  const text = i => {
    const [p, at, tier, old] = cells[i], first = at * p.per, last = Math.min(p.pages, first + p.per) - 1;
    if (tier === -2) return `shard ${p.shard}: ${p.error}`;
    return `shard ${p.shard}, page${last > first ? `s ${int(first)} to ${int(last)}` : ` ${int(first)}`}: ${tier < 0 ? "never addressed" : `${p.tiers[tier]}${last > first ? " for the most part" : ""}, last access ${age(old)}${old >= 0 ? " ago" : ""}`}`;
  };
  const counts = {};
  let pages = 0, size = 0;
  for (const p of m.parts) {
    pages += p.pages || 0;
    size = p.page_bytes || size;
    (p.tiers || []).forEach((t, k) => { counts[t] = (counts[t] || 0) + p.counts[k]; });
  }
  const tiers = Object.keys(counts).sort((a, b) => rank(a) - rank(b)), made = tiers.reduce((k, t) => k + counts[t], 0), per = Math.max(1, ...m.parts.map(p => p.per || 1));
  return html`${select}${error && html`<p class="warn">${error}</p>`}
    ${cells.length > 0 && html`<${Raster} n=${cells.length} paint=${paint} text=${text} label=${`Pages of ${w.name} by tier`} />`}
    <ul class="legend" aria-hidden="true">${tiers.map(t => html`<li><i class=${"swatch c" + Math.min(rank(t), 7)}></i>${t} <b>${num(counts[t])}</b></li>`)}</ul>
    <p class="dim">${num(pages)} pages of ${bytes(size)}${per > 1 ? `, ${num(per)} a cell` : ""}. Pale cells were not accessed for longer.</p>
    <details><summary>Show as table<span class="quiet">: pages by tier</span></summary><${Table} caption=${`Pages of ${w.name} by tier`} rows=${[...tiers.map(t => [t, counts[t]]), ["never addressed", pages - made]]} columns=${[
      { name: "Tier", value: r => r[0] }, { name: "Pages", number: true, value: r => num(r[1]) }, { name: "Bytes", number: true, value: r => (r[0] === "never addressed" ? "–" : bytes(r[1] * size)) } ]} />
      <${Table} caption="Pages of each shard" rows=${m.parts} columns=${[{ name: "Shard", value: p => p.shard }, { name: "Holder", value: p => (p.holder ? html`<${Link} to=${["agents", p.holder]}>${p.holder}<//>` : "–") }, { name: "Pages", number: true, value: p => num(p.pages) }, { name: "By tier", value: p => p.error || (p.tiers || []).map((t, k) => `${t} ${num(p.counts[k])}`).join(", ") }]} /></details>`;
}

// Flows draws the moves between tiers: to slower tiers below the row of tiers, to faster ones above it.
// moves is [{k: "FROM to TO", v: pages a second}]. The page has the same numbers as a table.
export function Flows({ tiers: given, moves }) {
  const list = moves.map(m => { const [from, to] = m.k.split(" to "); return { from, to, v: m.v }; }).filter(m => m.from !== m.to);
  const tiers = [...new Set([...order, ...given, ...list.flatMap(m => [m.from, m.to])])].filter(t => !/^(none|undefined)$/.test(t)).sort((a, b) => rank(a) - rank(b) || (a < b ? -1 : 1));
  const most = Math.max(1e-9, ...list.map(m => m.v)), wide = 720, gap = wide / tiers.length, x = t => gap * (tiers.indexOf(t) + 0.5), middle = 120;
  const arrows = list.filter(m => m.v > 0 && tiers.includes(m.from) && tiers.includes(m.to)).map(m => {
    const down = rank(m.to) > rank(m.from), side = down ? 1 : -1, a = x(m.from), b = x(m.to), y = middle + side * 18, tip = middle + side * 24, height = side * Math.min(92, 26 + 18 * Math.abs(tiers.indexOf(m.to) - tiers.indexOf(m.from)));
    const w = 1.5 + 12 * (m.v / most), h = Math.max(5, w * 0.9);
    return { ...m, down, w, line: `M${a} ${y} C${a} ${y + height},${b} ${y + height},${b} ${tip + side * h}`, head: `M${b - h} ${tip + side * h} L${b + h} ${tip + side * h} L${b} ${tip - side * 4}Z`, lx: (a + b) / 2, ly: y + height * 0.75 + (down ? 14 : -5) };
  });
  const words = arrows.map(m => `${m.from} to ${m.to} ${rate(m.v)}`).join(", ") || "no moves";
  return html`<figure class="chart"><figcaption>Flows between tiers</figcaption><div class="scroll" tabindex="0" role="region" aria-label="Flows between tiers"><svg class="flows" viewBox="0 0 ${wide} 240" role="img" aria-label=${`Pages a second: ${words}`}>
    ${arrows.map(m => html`<g class=${m.down ? "down" : "up"}><path d=${m.line} fill="none" stroke-width=${m.w} /><path class="head" d=${m.head} /><text x=${m.lx} y=${m.ly}>${rate(m.v)}</text></g>`)}
    ${tiers.map(t => html`<g class="tier"><rect x=${x(t) - 38} y=${middle - 16} width="76" height="32" rx="5" /><text x=${x(t)} y=${middle + 5}>${order.includes(t) && t !== "nvme" ? t.toUpperCase() : t === "nvme" ? "NVMe" : t}</text></g>`)}
  </svg></div></figure>`;
}
