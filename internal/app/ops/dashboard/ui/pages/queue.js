// Queue: the pools with their sources, the jobs and the dead letters. Job: one job.
import { html, useState, num, count, bytes, seconds, time, ago, Time, State, Table, Link, Empty, Cmd, Facts, Why, Bar, JSONText } from "../lib.js";
import { useJSON } from "../data.js";
import { CancelJob, Letter, Letters, Pause } from "../actions.js";

const jobLink = id => html`<${Link} to=${["jobs", id]}>${id}<//>`;

export function Queue({ state: s }) {
  const [over, setOver] = useState(false);
  const jobs = useJSON(`jobs?over=${over}&limit=500`, over ? 15 : 3), dead = useJSON("dead?limit=200", 10);
  const pools = s.pools || [];
  return html`<h1>Queue</h1>
    ${pools.map(p => html`<section aria-label=${`Pool ${p.pool}`}><h2>Pool ${p.pool} ${p.paused && html`<${State} of="paused" />`}</h2><${Pause} pool=${p.pool} paused=${p.paused} />
      <${Facts} of=${[["Jobs", num(p.jobs)], ["Delayed", num(p.delayed)], ["Wait for others", num(p.dependent)], ["Stored", bytes(p.bytes)], ["Oldest", ago(p.oldest)]]} />
      ${(p.unserved || []).map(k => html`<p class="warn">No agent handles kind <b>${k}</b>. Start an agent that does: <${Cmd}>${p.pool}agent<//>, or register a handler.</p>`)}
      <${Table} caption=${`Sources of pool ${p.pool}, by kind, lane, tenant and level`} rows=${p.sources || []} columns=${[
        { name: "Kind", value: r => r.kind }, { name: "Lane", value: r => r.lane }, { name: "Tenant", value: r => r.tenant }, { name: "Level", value: r => r.level || "default" },
        { name: "Waiting", number: true, value: r => num(r.waiting) }, { name: "Running", number: true, value: r => num(r.running) },
        { name: "Retried", number: true, value: r => num(r.retried) }, { name: "Agents", number: true, value: r => num(r.agents) },
        { name: "State", value: r => html`<${State} of=${r.paused ? "paused" : r.agents ? "ok" : "error: no agent"} /> <${Pause} pool=${p.pool} kind=${r.kind} paused=${r.paused} />` },
      ]} /></section>`)}
    ${!pools.length && html`<${Empty}>No queue yet. Make the streams: <${Cmd}>exoswarm init<//>, or start everything: <${Cmd}>exoswarm serve<//>.<//>`}
    <section aria-labelledby="jobs"><h2 id="jobs">Jobs</h2>
      <p class="filter"><label>Show <select value=${over} onChange=${e => setOver(e.target.value === "true")}><option value="false">jobs that wait or run</option><option value="true">jobs that are over</option></select></label></p>
      ${jobs.error && html`<p class="warn">${jobs.error}</p>`}
      ${jobs.data && html`<${Table} caption="Jobs" hide filter="jobs" rows=${jobs.data} empty=${html`No job. Submit one: <${Cmd}>exoswarm run -f swarm.yaml --input FILE --output FILE<//>.`} columns=${[
        { name: "Job", value: r => jobLink(r.id) }, { name: "State", value: r => html`<${State} of=${r.state} />` },
        { name: "Kind", value: r => r.job?.kind ?? r.result?.kind }, !over && { name: "Pool", value: r => r.job?.pool }, !over && { name: "Lane", value: r => r.job?.lane },
        !over && { name: "Tenant", value: r => r.job?.tenant }, over ? { name: "Ended", value: r => html`<${Time} at=${r.result?.finished} />` } : { name: "Submitted", value: r => html`<${Time} at=${r.job?.submitted} />` },
        { name: "Worker", value: r => r.running?.worker ?? r.result?.worker }, { name: "Attempt", number: true, value: r => num(r.running?.attempt ?? r.result?.attempts) }, over && { name: "Error", value: r => r.result?.error?.message ?? "" },
      ]} />`}</section>
    <section aria-labelledby="dead"><h2 id="dead">Dead letters</h2>
      ${dead.error && html`<p class="warn">${dead.error}</p>`}
      ${dead.data && html`<${Table} caption="Dead letters" hide filter="dead letters" rows=${dead.data} empty="None: no job used up its attempts." columns=${[
        { name: "Job", value: r => jobLink(r.id) }, { name: "Pool", value: r => r.pool }, { name: "Kind", value: r => r.kind }, { name: "Tenant", value: r => r.tenant },
        { name: "Reason", value: r => r.reason?.message }, { name: "Attempts", number: true, value: r => num(r.attempts) }, { name: "Worker", value: r => r.worker }, { name: "Died", value: r => html`<${Time} at=${r.died} /> <${Letter} letter=${r} />` },
      ]} />
      ${dead.data.length > 0 && html`<p>Queue one again: <${Cmd}>exoswarm dlq redrive ID<//>.</p><${Letters} letters=${dead.data} />`}`}</section>`;
}

// steps are the times of a job, in order.
function steps(j) {
  const out = [];
  const add = (name, at, note) => time(at) && out.push({ name, at, note });
  add("submitted", j.job?.submitted);
  add("not before", j.job?.not_before);
  add("started", j.running?.since, j.running && `attempt ${j.running.attempt} on ${j.running.worker}`);
  add(j.result?.status || "ended", j.result?.finished, j.result && `after ${count(j.result.attempts, "attempt")} on ${j.result.worker || "no worker"}`);
  if (out.length && !j.result) add("now", new Date().toISOString(), j.state);
  add("deadline", j.job?.deadline);
  return out.sort((a, b) => time(a.at) - time(b.at));
}

function Timeline({ job }) {
  const list = steps(job);
  if (!list.length) return null;
  return html`<section aria-labelledby="timeline"><h2 id="timeline">Timeline</h2><ol class="timeline">${list.map((s, i) => html`<li class=${time(s.at) > Date.now() ? "later" : ""}>
    <b>${s.name}</b> <${Time} at=${s.at} /> ${i > 0 && html`<span class="dim">+${seconds((time(s.at) - time(list[i - 1].at)) / 1000)}</span>`} ${s.note && html`<span>${s.note}</span>`}</li>`)}</ol></section>`;
}

// Progress draws the numbers of a progress message, and a bar where it has a part and a whole.
function Progress({ of: p }) {
  if (!p || typeof p !== "object") return p ? html`<p>${String(p)}</p>` : html`<p class="empty">The worker has not reported progress yet.</p>`;
  const pairs = [["done", "total"], ["decisions", "observations"], ["entry", "of"]], pair = pairs.find(([a, b]) => p[a] >= 0 && p[b] > 0 && typeof p[a] === "number");
  return html`${pair && html`<p><${Bar} share=${p[pair[0]] / p[pair[1]]} label=${`${pair[0]} of ${pair[1]}`} /> ${num(p[pair[0]])} ${pair[0]} of ${num(p[pair[1]])} ${pair[1]}</p>`}
    <${Facts} of=${Object.entries(p).filter(([, v]) => typeof v !== "object").map(([k, v]) => [k, typeof v === "number" ? num(v) : String(v)])} />`;
}

export function Logs({ id }) {
  const { data, error } = useJSON(`jobs/${encodeURIComponent(id)}/logs`, 3);
  const lines = (data || []).flatMap(l => (l.lines || []).map(x => ({ ...x, attempt: l.attempt, worker: l.worker })));
  const dropped = (data || []).reduce((n, l) => Math.max(n, l.dropped || 0), 0);
  return html`<section aria-labelledby="logs"><h2 id="logs">Log</h2>${error && html`<p class="warn">${error}</p>`}
    ${data && html`<${Table} caption="Lines of the log" hide filter="lines" rows=${lines} empty="The handler has logged nothing." columns=${[
      { name: "Time", value: r => html`<${Time} at=${r.time} />` }, { name: "Attempt", number: true, value: r => r.attempt }, { name: "Level", value: r => html`<${State} of=${(r.level || "").toLowerCase()} />` }, { name: "Message", value: r => r.msg },
      { name: "Fields", value: ({ time: _t, level: _l, msg: _m, attempt: _a, worker: _w, ...rest }) => Object.entries(rest).map(([k, v]) => `${k}=${typeof v === "object" ? JSON.stringify(v) : v}`).join(" ") },
    ]} />`}${dropped > 0 && html`<p class="dim">${dropped} lines had no room.</p>`}</section>`;
}

export function Job({ id }) {
  const { data: j, error, status } = useJSON(`jobs/${encodeURIComponent(id)}`, 2), over = !!j?.result;
  const why = useJSON(j && !over ? `jobs/${encodeURIComponent(id)}/explain` : null, 5);
  if (status === 404) return html`<h1>Job ${id}</h1><${Empty}>No such job. Its result may have expired. <${Link} to=${["queue"]}>All jobs<//><//>`;
  if (!j) return html`<h1>Job ${id}</h1><p class="empty">${error || "Asking the cluster."}</p>`;
  const parents = j.job?.after || [], waits = j.waits_for || [];
  return html`<h1>Job ${id}</h1><p><${State} of=${j.state} /> ${j.note} ${!over && html`<${CancelJob} id=${id} />`}</p>${error && html`<p class="warn">${error}</p>`}
    ${!over && html`<section aria-labelledby="why"><h2 id="why">Why it waits</h2><${Why} reason=${why.data} error=${why.error} /></section>`}
    <${Timeline} job=${j} />
    ${j.running && html`<section aria-labelledby="progress"><h2 id="progress">Progress</h2><p>Worker <${Link} to=${["agents", j.running.worker]}>${j.running.worker}<//>, attempt ${j.running.attempt}, for ${seconds((Date.now() - time(j.running.since)) / 1000)}.</p><${Progress} of=${j.running.progress} /></section>`}
    ${parents.length > 0 && html`<section aria-labelledby="parents"><h2 id="parents">Dependencies</h2><ul>${parents.map(p => html`<li>${jobLink(p)} <${State} of=${waits.includes(p) ? "waiting" : "done"} text=${waits.includes(p) ? "not over" : "over"} /></li>`)}</ul></section>`}
    ${j.result && html`<section aria-labelledby="result"><h2 id="result">Result</h2>
      ${j.result.error && html`<p class="warn"><b>${j.result.error.code}</b>: ${j.result.error.message}</p>`}${j.result.output !== undefined && html`<${JSONText} of=${j.result.output} label="Output" />`}</section>`}
    <${Logs} id=${id} />
    ${!j.job && j.result && html`<${Facts} of=${[["Kind", j.result.kind], ["Attempts", j.result.attempts], ["Worker", j.result.worker]]} />`}
    ${j.job && html`<section aria-labelledby="job"><h2 id="job">Job</h2><${Facts} of=${[["Kind", j.job.kind], ["Pool", j.job.pool], ["Lane", j.job.lane], ["Tenant", j.job.tenant], ["Replicas", j.job.replicas], ["Durability", j.job.durability], ["Attempts at most", j.job.max_attempts], ["Result kept", j.job.result_ttl_s && seconds(j.job.result_ttl_s)]]} />
      ${j.job.spec && html`<details><summary>Specification, without secrets</summary><${JSONText} of=${j.job.spec} label="Specification" /></details>`}</section>`}`;
}
