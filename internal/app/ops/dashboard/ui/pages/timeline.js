// The timeline of a GPU agent: the stages of its last batches.
import { html, useState, useEffect, useRef, num, int, bytes, seconds, percent, clock, Table, Empty } from "../lib.js";
import { useJSON } from "../data.js";
import { rgb, useScheme } from "../raster.js";

const ROW = 18, LABEL = 150, MOST = 60;

export function Timeline({ name }) {
  const [range, setRange] = useState(10), [at, setAt] = useState(-1), box = useRef(null), [wide, setWide] = useState(900), scheme = useScheme();
  const path = `agents/${encodeURIComponent(name)}/timeline`, { data: t, error } = useJSON(`${path}?seconds=${range}`, 2);
  useEffect(() => {
    if (!box.current) return;
    const sized = new ResizeObserver(() => requestAnimationFrame(() => box.current?.clientWidth && setWide(box.current.clientWidth)));
    sized.observe(box.current);
    return () => sized.disconnect();
  }, [t === null]);
  const spans = t?.spans || [], end = t ? Date.parse(t.at) * 1e6 : 0, begin = end - range * 1e9;
  const of = s => `${t.names[s.swarm] || s.swarm} shard ${s.shard}`;
  const shards = [...new Set(spans.map(of))].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  const rows = shards.flatMap(shard => t.stages.map((stage, i) => ({ shard, stage, i }))).slice(0, MOST), row = s => rows.findIndex(r => r.shard === of(s) && r.i === s.stage);
  const label = wide < 500 ? 60 : LABEL, high = Math.max(1, rows.length) * ROW + 4;
  const i = at < 0 || at >= spans.length ? spans.length - 1 : at;
  const text = k => { const s = spans[k]; return s ? `${t.stages[s.stage]} of ${of(s)}, entries ${int(s.first)} to ${int(s.last)}: ${seconds(s.took_ns / 1e9)}${s.bytes ? `, ${bytes(s.bytes)}` : ""}, ${((s.begin_ns - end) / 1e9).toFixed(3)} s` : "no span"; };
  useEffect(() => {
    const canvas = box.current?.querySelector("canvas");
    if (!canvas) return;
    const scale = devicePixelRatio || 1, c = canvas.getContext("2d"), css = n => `rgb(${rgb(n).join(",")})`;
    canvas.width = wide * scale;
    canvas.height = high * scale;
    c.scale(scale, scale);
    c.font = "11px system-ui, sans-serif";
    c.textBaseline = "middle";
    rows.forEach((r, k) => {
      c.fillStyle = css(k % 2 ? "--bg" : "--soft");
      c.fillRect(0, k * ROW, wide, ROW);
      c.fillStyle = css("--dim");
      c.fillText(label < LABEL ? r.stage : `${r.i === 0 ? r.shard.slice(0, 16) : ""}`, 4, k * ROW + ROW / 2);
      if (label === LABEL) c.fillText(r.stage, 96, k * ROW + ROW / 2);
    });
    const lookup = new Map(rows.map((r, k) => [`${r.shard} ${r.i}`, k]));
    spans.forEach((s, k) => {
      const y = lookup.get(`${of(s)} ${s.stage}`);
      if (y === undefined) return;
      const x = label + ((s.begin_ns - begin) / (end - begin)) * (wide - label), w = Math.max(1, (s.took_ns / (end - begin)) * (wide - label));
      c.fillStyle = css(`--c${s.stage % 8}`);
      c.fillRect(Math.max(label, x), y * ROW + 3, w, ROW - 6);
      if (k === i) {
        c.strokeStyle = css("--fg");
        c.lineWidth = 2;
        c.strokeRect(Math.max(label, x) - 2, y * ROW + 1, w + 4, ROW - 2);
      }
    });
  }, [t, i, wide, high, scheme]);
  const key = e => {
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20, Home: -spans.length, End: spans.length }[e.key];
    if (step === undefined) return;
    e.preventDefault();
    setAt(Math.max(0, Math.min(spans.length - 1, i + step)));
  };
  const point = e => {
    const r = box.current.getBoundingClientRect(), y = Math.floor((e.clientY - r.top) / ROW), when = begin + ((e.clientX - r.left - label) / (wide - label)) * (end - begin);
    let best = -1, far = Infinity;
    spans.forEach((s, k) => {
      if (row(s) !== y) return;
      const d = Math.max(s.begin_ns - when, when - s.begin_ns - s.took_ns, 0);
      if (d < far) [best, far] = [k, d];
    });
    if (best >= 0) setAt(best);
  };
  const stages = (t?.stages || []).map((stage, k) => {
    const own = spans.filter(s => s.stage === k), took = own.reduce((n, s) => n + s.took_ns, 0);
    return { stage, n: own.length, took: took / 1e9, longest: Math.max(0, ...own.map(s => s.took_ns)) / 1e9, bytes: own.reduce((n, s) => n + s.bytes, 0) };
  });
  const span = spans.length ? (end - Math.max(begin, Math.min(...spans.map(s => s.begin_ns)))) / 1e9 : range;
  return html`<p class="filter"><label>Length <select value=${range} onChange=${e => setRange(Number(e.target.value))}>${[2, 10, 60].map(s => html`<option value=${s}>${s} s</option>`)}</select></label>
      <a href=${`api/v1/${path}?seconds=60&format=chrome`} download=${`${name}.trace.json`}>Download as Chrome trace</a></p>
    ${error && html`<p class="warn">No timeline: ${error}</p>`}
    ${!t && !error && html`<p class="empty">Asking the agent.</p>`}
    ${t && !spans.length && html`<${Empty}>No batch in the last ${range} s.<//>`}
    <div ref=${box} class="spans" hidden=${!spans.length} role="slider" tabindex="0" aria-label="Spans of the last batches" aria-valuemin="0" aria-valuemax=${Math.max(0, spans.length - 1)} aria-valuenow=${Math.max(0, i)} aria-valuetext=${text(i)} onKeyDown=${key} onPointerDown=${point}><canvas height=${high}></canvas></div>
    ${spans.length > 0 && html`<p class="cell">${text(i)}</p>
      ${shards.length * t.stages.length > MOST && html`<p class="dim">The first ${MOST} rows; the trace has all.</p>`}
      <${Table} caption=${`Stages until ${clock(new Date(t.at))}, in ${seconds(span)}`} rows=${stages} columns=${[
        { name: "Stage", value: r => html`<i class=${"swatch c" + (t.stages.indexOf(r.stage) % 8)}></i>${r.stage}` }, { name: "Spans", number: true, value: r => num(r.n) }, { name: "Time", number: true, value: r => seconds(r.took) }, { name: "Share", number: true, value: r => percent(span > 0 ? r.took / span : 0) }, { name: "Longest", number: true, value: r => seconds(r.longest) }, { name: "Bytes", number: true, value: r => (r.bytes ? bytes(r.bytes) : "–") } ]} />
      <details><summary>The newest spans as a table</summary><${Table} caption="The newest spans" hide rows=${spans.slice(-60).reverse()} columns=${[
        { name: "Stage", value: s => t.stages[s.stage] }, { name: "Shard", value: of }, { name: "Entries", number: true, value: s => `${int(s.first)} to ${int(s.last)}` }, { name: "Ended", number: true, value: s => `${((s.begin_ns + s.took_ns - end) / 1e9).toFixed(3)} s` }, { name: "Time", number: true, value: s => seconds(s.took_ns / 1e9) }, { name: "Bytes", number: true, value: s => (s.bytes ? bytes(s.bytes) : "–") } ]} /></details>`}`;
}
