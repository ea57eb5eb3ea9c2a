// Actions change the cluster: a button opens a dialog that shows what the action affects, and the user
// confirms exactly that. Without --actions there are no buttons.
import { render } from "./vendor/preact.mjs";
import { html, useState, useEffect, useRef, Time, State, Table, Cmd } from "./lib.js";
import { get, shared, useJSON } from "./data.js";

// send posts to a route of actions. An error has the new preview, if the server sent one.
async function send(path, body) {
  const ask = async () => {
    const answer = await fetch(`api/v1/actions/${path}`, {
      method: "POST", cache: "no-store", headers: { "Content-Type": "application/json", "X-Exoswarm-Action": shared.who?.action_token || "" }, body: JSON.stringify(body),
    });
    return [answer, await answer.json().catch(() => ({ error: `status ${answer.status}` }))];
  };
  let [answer, got] = await ask();
  if (answer.status === 403) { // the token is of an earlier login or process
    shared.who = await get("login");
    [answer, got] = await ask();
  }
  if (!answer.ok) throw Object.assign(new Error(got.error || `status ${answer.status}`), { preview: got.preview });
  return got;
}

// Act is a button for an action. request is what it asks for; fields are inputs that complete it:
// {name, label, type, limits} with limits for a member of the limits of a tenant.
export function Act({ label, about, request, fields = [] }) {
  if (!shared.who?.actions) return null;
  const name = about ? `${label} ${about}` : label;
  return html`<button type="button" class="act" aria-haspopup="dialog" aria-label=${name} onClick=${e => show(name, request, fields, e.currentTarget)}>${label}</button>`;
}

// show opens a dialog outside the page, which is drawn again each second: a row that moves must not
// change what the user confirms. At its end the focus returns to the button.
function show(label, request, fields, button) {
  const root = document.createElement("div");
  document.body.append(root);
  const close = () => {
    render(null, root);
    root.remove();
    if (button.isConnected) button.focus();
  };
  render(html`<${Dialog} label=${label} request=${request} fields=${fields} close=${close} />`, root);
}

// complete returns a request with the values of the fields. An empty value is left out.
function complete(request, fields, values) {
  const out = { ...request };
  for (const f of fields) {
    const v = values[f.name];
    if (f.type === "checkbox") out[f.name] = !!v;
    else if (v === undefined || v === "") continue;
    else if (f.limits) out.limits = { ...out.limits, [f.name]: Number(v) };
    else out[f.name] = v;
  }
  return out;
}

function Dialog({ label, request, fields, close }) {
  const box = useRef(null), [preview, setPreview] = useState(null), [values, setValues] = useState({}), [error, setError] = useState(""), [busy, setBusy] = useState(false), [done, setDone] = useState("");
  const look = async () => {
    setBusy(true);
    setError("");
    try {
      setPreview(await send("preview", complete(request, fields, values)));
    } catch (e) {
      setError(e.message);
    }
    setBusy(false);
  };
  const confirm = async () => {
    setBusy(true);
    setError("");
    try {
      const got = await send("confirm", { request: preview.request, digest: preview.digest, ticket: preview.ticket });
      setDone(got.sentence);
    } catch (e) {
      setError(e.message);
      setPreview(e.preview || null);
    }
    setBusy(false);
  };
  useEffect(() => {
    box.current.showModal();
    if (!fields.length) look();
  }, []);
  // A step replaces the button that had the focus.
  useEffect(() => {
    if (!busy) box.current?.querySelector("[data-next]")?.focus();
  }, [preview, done, busy]);
  const submit = f => e => {
    e.preventDefault();
    if (!busy) f();
  };
  return html`<dialog ref=${box} class="action" aria-labelledby="action-title" onClose=${close}>
    <h2 id="action-title">${label}</h2>
    <div role="status">${busy ? html`<p>Asking the cluster.</p>` : done ? html`<p><${State} of="done" /> ${done}</p>` : null}</div>
    <p role="alert" class=${error ? "warn" : "quiet"}>${error}</p>
    ${done ? html`<p><button type="button" data-next onClick=${() => box.current.close()}>Close</button></p>`
      : preview ? html`<form onSubmit=${submit(confirm)}><p><b>${preview.sentence}</b></p>
        <ul>${preview.affects.map(a => html`<li>${a.what}: ${a.count}${a.names?.length ? html` <span class="dim">(${a.names.join(", ")}${a.count > a.names.length ? ", …" : ""})</span>` : null}</li>`)}</ul>
        ${preview.final && html`<p>This cannot be undone.</p>`}
        <p><button type="submit" data-next disabled=${busy}>Confirm</button> <button type="button" onClick=${() => box.current.close()}>Leave it</button></p></form>`
      : html`<form onSubmit=${submit(look)}>${fields.map(f => html`<p><label>${f.label} <input type=${f.type || "text"} step=${f.type === "number" ? "any" : undefined} min=${f.type === "number" ? "0" : undefined} checked=${f.type === "checkbox" ? !!values[f.name] : undefined}
          value=${f.type === "checkbox" ? undefined : values[f.name] ?? ""} onInput=${e => setValues({ ...values, [f.name]: f.type === "checkbox" ? e.target.checked : e.target.value })} /></label></p>`)}
        <p><button type="submit" data-next disabled=${busy}>Show what it affects</button> <button type="button" onClick=${() => box.current.close()}>Leave it</button></p></form>`}
  </dialog>`;
}

// The actions of the pages. Each is a button, or nothing without --actions.
export const CancelJob = ({ id }) => html`<${Act} label="Cancel job" about=${id} request=${{ action: "job.cancel", object: id }} />`;
export const Letter = ({ letter: d }) => html`<${Act} label="Queue again" about=${d.id} request=${{ action: "dlq.redrive", object: d.id, pool: d.pool, kind: d.kind, tenant: d.tenant }} />
  <${Act} label="Drop" about=${d.id} request=${{ action: "dlq.purge", object: d.id, pool: d.pool, kind: d.kind, tenant: d.tenant }} />`;
export const Letters = ({ letters }) => html`<p>${[...new Set(letters.map(d => `${d.pool} ${d.kind}`))].map(k => {
  const [pool, kind] = k.split(" ");
  return html`<${Act} label="Queue all again" about=${`of kind ${kind}`} request=${{ action: "dlq.redrive", pool, kind }} /> `;
})}</p>`;
export const Pause = ({ pool, kind, paused }) => html`<${Act} label=${paused ? "Resume" : "Pause"} about=${kind ? `kind ${kind} of pool ${pool}` : `pool ${pool}`} request=${{ action: paused ? "queue.resume" : "queue.pause", object: pool, ...(kind ? { kind } : {}) }} />`;
export const SwarmActions = ({ id }) => html`<${Act} label="Snapshot" about=${id} request=${{ action: "swarm.snapshot", object: id }} fields=${[{ name: "name", label: "Name of the snapshot, empty for one with the time" }]} />
  <${Act} label="Delete swarm" about=${id} request=${{ action: "swarm.delete", object: id }} />`;
export const DrainAgent = ({ name }) => html`<${Act} label="Drain agent" about=${name} request=${{ action: "agent.drain", object: name }} />`;
const limitFields = [["weight", "Weight"], ["rate", "Jobs per second"], ["burst", "Burst"], ["concurrency", "Running jobs"], ["queued", "Jobs in the queue"]].map(([name, label]) => ({ name, label: `${label} (0: no limit, empty: as it is)`, type: "number", limits: true }));
export const Limit = ({ tenant, limited }) => html`<${Act} label="Limit" about=${`tenant ${tenant}`} request=${{ action: "tenant.limit", object: tenant }} fields=${limitFields} />
  ${limited && html`<${Act} label="Remove limits" about=${`of tenant ${tenant}`} request=${{ action: "tenant.unlimit", object: tenant }} />`}`;

// Audit lists what operators did.
export function Audit() {
  const [seconds, setSeconds] = useState(604800), { data, error } = useJSON(`audit?seconds=${seconds}`, 5);
  return html`<h1>Audit</h1><p>What operators did here and with <${Cmd}>exoswarm<//>, newest first. Records are kept for 90 days. ${!shared.who?.actions && html`This dashboard only reads: <${Cmd}>exoswarm ui --actions<//> lets its users act.`}</p>
    <p class="filter"><label>Show <select value=${seconds} onChange=${e => setSeconds(Number(e.target.value))}><option value="86400">a day</option><option value="604800">7 days</option><option value="7776000">90 days</option></select></label></p>
    ${error && html`<p class="warn">${error}</p>`}
    ${data && html`<${Table} caption="Actions" hide filter="actions" rows=${data} empty="Nothing was done in this time." columns=${[
      { name: "Time", value: e => html`<${Time} at=${e.at} />` }, { name: "User", value: e => e.user }, { name: "From", value: e => e.from || "–" }, { name: "Through", value: e => e.via }, { name: "Action", value: e => e.action }, { name: "Object", value: e => e.object },
      { name: "Outcome", value: e => html`<${State} of=${{ done: "done", failed: "failed" }[e.outcome] ?? "waiting"} text=${e.outcome} />` }, { name: "Detail", value: e => e.error || e.detail || "" },
    ]} />`}`;
}
