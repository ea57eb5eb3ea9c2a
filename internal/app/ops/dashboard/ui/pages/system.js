// Tenants, NATS and the doctor.
import { html, useState, num, count as plural, bytes, percent, seconds, Time, State, Table, Empty, Cmd, Facts, Bar } from "../lib.js";
import { useJSON } from "../data.js";
import { Limit } from "../actions.js";

const some = v => (v === undefined || v === null ? "–" : v === 0 ? "none" : num(v));

export function Tenants({ state: s }) {
  return html`<h1>Tenants</h1><${Table} caption="Tenants with jobs or limits" filter="tenants" rows=${s.tenants || []}
    empty=${html`No tenant has jobs or limits. Set limits: <${Cmd}>exoswarm tenant limit NAME --concurrency 8<//>.`} columns=${[
      { name: "Tenant", value: t => (t.tenant === "*" ? "* (all without limits of their own)" : t.tenant) }, { name: "Waiting", number: true, value: t => num(t.waiting) }, { name: "Running", number: true, value: t => num(t.running) },
      { name: "At a time", value: t => { const most = t.limits?.concurrency; return most ? html`<${Bar} share=${t.running / most} label=${`jobs of ${t.tenant} at a time`} /> ${t.running} of ${most}` : "–"; } },
      { name: "Weight", number: true, value: t => some(t.limits?.weight) }, { name: "Jobs/s", number: true, value: t => some(t.limits?.rate) }, { name: "Burst", number: true, value: t => some(t.limits?.burst) }, { name: "In the queue at most", number: true, value: t => some(t.limits?.queued) },
      { name: "Note", value: t => html`${t.limits?.error || ""} <${Limit} tenant=${t.tenant} limited=${!!t.limits} />` },
    ]} />`;
}

const fill = (used, most) => (most > 0 ? html`${bytes(used)} of ${bytes(most)} <${Bar} share=${used / most} label="used" />` : `${bytes(used)}, without limit`);

export function NATS({ state: s }) {
  const n = s.nats || {};
  return html`<h1>NATS</h1>${s.error && html`<p class="warn">The last look failed: ${s.error}</p>`}
    <${Facts} of=${[["Address", n.url], ["Server", n.server], ["Version", n.version], ["Cluster", n.cluster || "one server"], ["Known servers", (n.servers || []).join(", ")], ["Round trip", seconds(n.rtt_ns / 1e9)], ["Store", n.refuses ? html`<${State} of="error" text=${`${bytes(n.store_bytes)}; the disk is nearly full, nothing more is stored`} />` : fill(n.store_bytes, n.store_limit_bytes)], ["Memory", fill(n.memory_bytes, n.memory_limit_bytes)]]} />
    <${Table} caption="Streams of the protocol" filter="streams" rows=${n.streams || []} empty=${html`No stream. Make them: <${Cmd}>exoswarm init<//>.`} columns=${[
      { name: "Stream", value: t => t.name }, { name: "Messages", number: true, value: t => num(t.messages) }, { name: "Stored", number: true, value: t => bytes(t.bytes) },
      { name: "Limit", value: t => (t.max_bytes > 0 ? html`<${Bar} share=${t.bytes / t.max_bytes} label=${`fill of ${t.name}`} /> ${bytes(t.max_bytes)}` : t.max_messages > 0 ? html`<${Bar} share=${t.messages / t.max_messages} label=${`fill of ${t.name}`} /> ${num(t.max_messages)} messages` : "none") },
      { name: "Replicas", number: true, value: t => t.replicas }, { name: "Leader", value: t => t.leaderless ? html`<${State} of="error" text="no leader" />` : t.leader || "–" },
      { name: "Behind", value: t => (t.missing ? html`<${State} of="error" text="not reported" />` : t.behind?.length ? html`<${State} of="error" /> ${t.behind.join(", ")}` : "none") },
    ]} />`;
}

export function Doctor() {
  const { data, error } = useJSON("doctor", 30), [every, setEvery] = useState(false);
  const worst = ["error", "warn", "info", "skip", "ok"], rows = (data || []).filter(c => every || (c.level !== "ok" && c.level !== "skip")).sort((a, b) => worst.indexOf(a.level) - worst.indexOf(b.level));
  const of = l => (data || []).filter(c => c.level === l).length;
  return html`<h1>Doctor</h1>${error && html`<p class="warn">${error}</p>`}${!data && !error && html`<p class="empty">Checking the cluster.</p>`}
    ${data && html`<p>${plural(of("error"), "error")}, ${plural(of("warn"), "warning")}, ${of("ok")} passed, ${of("skip")} skipped.</p>
      <p class="filter"><label><input type="checkbox" checked=${every} onChange=${e => setEvery(e.target.checked)} /> checks that passed, too</label></p>
      <${Table} caption="Checks" hide filter="checks" rows=${rows} empty=${html`Nothing to cure. The same checks in the terminal: <${Cmd}>exoswarm doctor --all<//>.`} columns=${[
        { name: "Check", value: c => c.id }, { name: "Level", value: c => html`<${State} of=${c.level} />` }, { name: "Category", value: c => c.category }, { name: "Finding", value: c => html`${c.summary}${c.details?.length ? html`<ul class="dim">${c.details.map(d => html`<li>${d}</li>`)}</ul>` : null}` }, { name: "Cure", value: c => c.cure || "–" },
      ]} />`}`;
}
