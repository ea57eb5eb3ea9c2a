// Agents, one agent with its telemetry, and the tiers of pages.
import { html, useState, num, sum, count, rate, bytes, percent, ago, Time, State, Table, Link, Empty, Cmd, Facts, Bar } from "../lib.js";
import { track, byLabel } from "../data.js";
import { Chart, all } from "../chart.js";
import { Timeline, Flows, PageMap } from "../lazy.js";
import { DrainAgent } from "../actions.js";

// busy returns the busy share of the devices and the used processors of all agents since the frame before.
function busy(state, before) {
  const total = (a, name) => (a?.telemetry?.samples || []).filter(x => x.n === name), out = {};
  for (const a of state.agents || []) {
    const then = (before?.agents || []).find(x => x.name === a.name), dt = (Date.parse(a.telemetry?.at) - Date.parse(then?.telemetry?.at)) / 1000;
    for (const [key, name] of [["device", "exoswarm_gpuagent_device_busy_seconds_total"], ["processors", "process_cpu_seconds_total"]]) {
      const now = total(a, name), grown = sum(now, x => x.v) - sum(total(then, name), x => x.v);
      if (now.length && dt > 0 && grown >= 0) out[`${a.name} ${key}`] = grown / dt;
    }
  }
  return out;
}
const last = (t, key) => (t.series[key] || []).findLast(v => v !== null && v !== undefined);

export function Agents({ state: s }) {
  const t = track("busy", busy), used = (a, key) => last(t, `${a.name} ${key}`);
  return html`<h1>Agents</h1><${Table} caption="Agents of both pools" filter="agents" rows=${s.agents || []}
    empty=${html`No agent yet. Start one of each pool: <${Cmd}>gpuagent --nats URL<//> and <${Cmd}>cpuagent --nats URL<//>, or all at once: <${Cmd}>exoswarm serve<//>.`} columns=${[
      { name: "Agent", value: a => html`<${Link} to=${["agents", a.name]}>${a.name}<//>` }, { name: "Pool", value: a => a.pool }, { name: "State", value: a => html`<${State} of=${a.state} />` },
      { name: "Device", value: a => a.device || "–" }, { name: "Kinds", value: a => (a.kinds || []).join(", ") },
      { name: "Work", number: true, value: a => `${a.running}${a.max_shards || a.concurrency ? ` of ${a.max_shards || a.concurrency}` : ""}` },
      { name: "Device busy", number: true, value: a => (used(a, "device") === undefined ? "–" : percent(used(a, "device"))) }, { name: "Processors used", number: true, value: a => (used(a, "processors") === undefined ? "–" : num(used(a, "processors"))) },
      { name: "Memory", number: true, value: a => (a.memory ? bytes(a.memory) : "–") }, { name: "Telemetry", value: a => (a.telemetry ? ago(a.telemetry.at) : "none") }, { name: "Seen", value: a => ago(a.seen || a.lost?.since) }, { name: "Started", value: a => html`<${Time} at=${a.started} />` },
    ]} />`;
}

// key names a sample with its labels.
const key = s => s.n.replace(/^exoswarm_/, "") + (s.l && Object.keys(s.l).length ? ` {${Object.entries(s.l).map(([k, v]) => `${k}=${v}`).join(", ")}}` : "");
const counter = name => /_(total|sum|count)$/.test(name);

// numbers returns the gauges of an agent, and the rates of its counters since the frame before.
function numbers(name) {
  return (state, before) => {
    const out = {}, now = (state.agents || []).find(a => a.name === name)?.telemetry, then = (before?.agents || []).find(a => a.name === name)?.telemetry;
    if (!now) return out;
    const old = new Map((then?.samples || []).map(s => [key(s), s.v])), dt = then ? (Date.parse(now.at) - Date.parse(then.at)) / 1000 : 0;
    for (const s of now.samples || []) {
      const k = key(s);
      if (!counter(s.n)) out[k] = s.v;
      else if (dt > 0 && old.has(k) && s.v >= old.get(k)) out[k] = (s.v - old.get(k)) / dt;
    }
    return out;
  };
}

// held says what the devices of an agent hold of language models.
const held = a => {
  const of = byLabel([a], "exoswarm_model_bytes", "place"), passing = (of.pinned || 0) + (of.file || 0);
  return of.device ? `${bytes(of.device)} on its devices${passing ? `, ${bytes(passing)} pass in each step` : ""}` : "";
};

const format = k => (/_bytes/.test(k) ? bytes : /_ratio|busy_seconds_total/.test(k) ? percent : counter(k.split(" ")[0]) ? rate : num);
// titled makes a title of the name of a metric.
const titled = m => {
  const words = m.replace(/^(exoswarm|go|process)_/, "").replace(/_total$/, " per second").replace(/_(bytes|seconds|celsius|watts|ratio)\b/, "").replaceAll("_", " ");
  return words[0].toUpperCase() + words.slice(1);
};
// first are the metrics that are drawn first.
const first = ["device_busy", "gpuagent_device_busy", "swarm_observations", "swarm_agent_steps", "swarm_pages", "swarm_page_moves", "device_memory", "device_temperature", "device_power", "jobs_"];
const rank = name => { const i = first.findIndex(p => name.startsWith(p)); return i < 0 ? first.length : i; };

export function Agent({ name, state: s }) {
  const a = (s.agents || []).find(x => x.name === name), t = track("agent " + name, numbers(name)), [more, setMore] = useState(false);
  if (!a) return html`<h1>Agent ${name}</h1><${Empty}>No such agent. It may have ended. <${Link} to=${["agents"]}>All agents<//><//>`;
  const shards = (s.swarms || []).flatMap(w => (w.shards || []).filter(x => x.holder === name).map(x => ({ ...x, swarm: w.name, id: w.id })));
  const metrics = {}, build = a.telemetry?.samples?.find(x => x.n === "exoswarm_build_info")?.l;
  for (const k of Object.keys(t.series)) if (!/_info( |$)/.test(k)) (metrics[k.split(" ")[0]] ??= []).push(k);
  const names = Object.keys(metrics).sort((x, y) => rank(x) - rank(y) || (x < y ? -1 : 1)), shown = more ? names : names.slice(0, 8);
  return html`<h1>Agent ${name}</h1><p><${State} of=${a.state} /> ${a.fallback} ${!a.lost && html`<${DrainAgent} name=${name} />`}</p>
    <${Facts} of=${[["Pool", a.pool], ["Device", a.device], ["Memory of the device", a.memory && bytes(a.memory)], ["Room for pages", a.room && bytes(a.room.all)], ["Free memory", a.room?.free !== undefined && a.room?.free !== null ? bytes(a.room.free) : ""], ["Free on disks", a.room?.disk && bytes(a.room.disk)], ["Models", held(a)],
      ["Kinds", (a.kinds || []).join(", ")], ["Work", `${a.running}${a.max_shards || a.concurrency ? ` of ${a.max_shards || a.concurrency}` : ""}`], ["Parked", a.parked], ["Version", build?.version], ["Started", html`<${Time} at=${a.started} />`], ["Seen", ago(a.seen || a.lost?.since)]]} />
    ${a.lost && html`<p class="warn">The agent ended ${ago(a.lost.since)} without giving back ${count((a.lost.shards || []).length, "shard")}. GPU agents with room take them over; if none does, start one: <${Cmd}>gpuagent --name ${name}<//>.</p>`}
    ${(a.recovering || []).length > 0 && html`<${Table} caption="Shards that it replays" rows=${a.recovering} columns=${[{ name: "Shard", value: r => r.shard }, { name: "Replay", value: r => html`<${Bar} share=${r.entry / Math.max(1, r.of)} label=${`replay of ${r.shard}`} /> ${num(r.entry)} of ${num(r.of)}` }, { name: "Rate", number: true, value: r => rate(r.entries_per_second) }]} />`}
    <section aria-labelledby="shards"><h2 id="shards">Shards</h2><${Table} caption="Shards that it serves" hide rows=${shards} empty=${a.pool === "gpu" ? "It serves no shard." : "CPU agents serve no shards."} columns=${[
      { name: "Swarm", value: x => html`<${Link} to=${["swarms", x.id]}>${x.swarm}<//>` }, { name: "Shard", number: true, value: x => x.shard }, { name: "State", value: x => html`<${State} of=${x.state} />` }, { name: "Lag", number: true, value: x => num(x.entries - x.answered) }, { name: "Rate", number: true, value: x => rate(x.entries_per_second) }]} /></section>
    ${a.pool === "gpu" && !a.lost && html`<section aria-labelledby="timeline"><h2 id="timeline">Timeline of the pipeline</h2><${Timeline} key=${name} name=${name} /></section>`}
    <section aria-labelledby="telemetry"><h2 id="telemetry">Telemetry of the last minutes</h2>
      ${!a.telemetry && html`<${Empty}>The agent has not answered. Agents of earlier versions have no telemetry.<//>`}
      ${a.telemetry?.omitted > 0 && html`<p class="dim">${a.telemetry.omitted} samples did not fit into the message.</p>`}
      <div class="charts">${shown.map(m => html`<${Chart} key=${m} title=${titled(m)} at=${t.at} format=${format(m)} series=${metrics[m].slice(0, 8).map(k => ({ label: k.slice(m.length + 1).replace(/[{}]/g, "") || "value", values: t.series[k] }))} />`)}</div>
      ${names.length > shown.length && html`<p><button type="button" onClick=${() => setMore(true)}>Show the charts of all ${names.length} metrics</button></p>`}
      ${a.telemetry && html`<details><summary>All ${(a.telemetry.samples || []).length} samples</summary><${Table} caption="Samples" hide filter="samples" rows=${a.telemetry.samples || []} columns=${[{ name: "Metric", value: r => r.n }, { name: "Labels", value: r => Object.entries(r.l || {}).map(([k, v]) => `${k}=${v}`).join(", ") }, { name: "Value", number: true, value: r => num(r.v) }]} /></details>`}</section>`;
}

const order = ["gpu", "cpu", "nvme", "ssd", "hdd", "checkpoint"];
const tierRank = t => { const i = order.indexOf(t.toLowerCase()); return i < 0 ? order.length : i; };

// moves returns the moves a second between tiers, by "from to", since the frame before.
function moves(state, before) {
  const flow = f => {
    const out = {};
    for (const a of f?.agents || []) for (const s of a.telemetry?.samples || []) if (s.n === "exoswarm_swarm_page_moves_total") {
      const k = `${s.l?.from} to ${s.l?.to}`;
      out[k] = (out[k] || 0) + s.v;
    }
    return out;
  };
  const now = flow(state), then = flow(before), dt = before ? (Date.parse(state.at) - Date.parse(before.at)) / 1000 : 0, out = {};
  for (const [k, v] of Object.entries(now)) if (dt > 0 && k in then && v >= then[k]) out[k] = (v - then[k]) / dt;
  return out;
}

export function Tiers({ state: s }) {
  const pages = track("pages", f => ({ ...byLabel(f.agents, "exoswarm_swarm_pages", "tier") })), flows = track("moves", moves);
  const held = byLabel(s.agents, "exoswarm_swarm_pages", "tier"), stored = byLabel(s.agents, "exoswarm_swarm_stored_pages", "tier"), size = byLabel(s.agents, "exoswarm_swarm_stored_bytes", "tier");
  const hits = byLabel(s.agents, "exoswarm_swarm_page_hits_total", "tier"), misses = byLabel(s.agents, "exoswarm_swarm_page_misses_total", "tier");
  const tiers = [...new Set([...Object.keys(held), ...Object.keys(stored)])].sort((a, b) => tierRank(a) - tierRank(b) || (a < b ? -1 : 1)), most = Math.max(1, ...tiers.map(t => (held[t] || 0) + (stored[t] || 0)));
  const now = Object.keys(flows.series).map(k => ({ k, v: flows.series[k][flows.series[k].length - 1] || 0 })).sort((a, b) => b.v - a.v), peak = Math.max(1, ...now.map(r => r.v));
  if (!tiers.length) return html`<h1>Tiers</h1><${Empty}>No GPU agent reports pages. Pages exist while a swarm is served: <${Cmd}>exoswarm swarm create -f swarm.yaml<//>. Disks are given to an agent with <${Cmd}>gpuagent --tier nvme=FOLDER<//>.<//>`;
  return html`<h1>Tiers</h1>
    <${Table} caption="Pages by tier, of all GPU agents" rows=${tiers} columns=${[
      { name: "Tier", value: t => t }, { name: "Pages in memory", number: true, value: t => num(held[t] ?? null) }, { name: "Durable pages", number: true, value: t => num(stored[t] ?? null) },
      { name: "Share", value: t => html`<${Bar} share=${((held[t] || 0) + (stored[t] || 0)) / most} label=${`pages of tier ${t}`} />` }, { name: "Stored", number: true, value: t => bytes(size[t] ?? null) },
      { name: "Hits", number: true, value: t => (hits[t] || misses[t] ? percent(hits[t] / (hits[t] + (misses[t] || 0))) : "–") } ]} />
    <${Flows} tiers=${tiers} moves=${now} />
    <${Table} caption="Moves between tiers now" rows=${now} empty="No page has moved in the last minutes." columns=${[{ name: "Move", value: r => r.k }, { name: "Pages", number: true, value: r => rate(r.v) }, { name: "Flow", value: r => html`<${Bar} share=${r.v / peak} label=${`moves ${r.k}`} />` }]} />
    <div class="charts"><${Chart} title="Pages by tier" stacked at=${pages.at} series=${all(pages)} /><${Chart} title="Moves between tiers" at=${flows.at} format=${rate} series=${all(flows).slice(0, 8)} /></div>
    <section aria-labelledby="map"><h2 id="map">Map of pages</h2><${PageMap} swarms=${s.swarms || []} /></section>`;
}
