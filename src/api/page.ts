import { createHash } from 'node:crypto';
import type { Field } from './fields.ts';
import type { Operation } from './operation.ts';
import { commonErrors, toEntry, type Entry } from './reference.ts';

const STYLE = `
:root{color-scheme:light dark;--ink:#1c2430;--soft:#5b6675;--line:#dfe3e8;--paper:#fff;--code:#f5f7f9;--mark:#0b5cad}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ee;--soft:#9aa5b4;--line:#303845;--paper:#14181f;--code:#1c222b;--mark:#6cb2ff}}
*{box-sizing:border-box}html{scroll-padding-top:1rem}
body{margin:0;font:16px/1.55 system-ui,sans-serif;color:var(--ink);background:var(--paper);display:grid;grid-template-columns:17rem minmax(0,1fr)}
nav{position:sticky;top:0;height:100vh;overflow-y:auto;padding:1.5rem 1.25rem;border-right:1px solid var(--line);font-size:.9rem}
nav h2{font-size:.75rem;text-transform:uppercase;letter-spacing:.06em;color:var(--soft);margin:1.4rem 0 .3rem}
nav ul{list-style:none;margin:0;padding:0}nav a{display:block;padding:.12rem 0}
main{padding:2rem clamp(1rem,4vw,4rem);max-width:62rem}
a{color:var(--mark);text-decoration:none}a:hover{text-decoration:underline}
h1{margin:0 0 1rem;font-size:1.9rem}main h2{margin:3rem 0 0;text-transform:capitalize}
section{border-top:1px solid var(--line);margin-top:1.5rem;padding-top:1.2rem}
section h3{font:600 1.1rem ui-monospace,monospace;margin:0 0 .4rem}
h4{margin:1.2rem 0 .3rem;font-size:.8rem;text-transform:uppercase;letter-spacing:.05em;color:var(--soft)}
.tag{font:.72rem system-ui,sans-serif;border:1px solid var(--line);border-radius:1rem;padding:.1rem .6rem;color:var(--soft);margin-left:.6rem;vertical-align:middle}
.soft{color:var(--soft)}table{border-collapse:collapse;width:100%;font-size:.92rem}
th,td{text-align:left;vertical-align:top;padding:.35rem .8rem .35rem 0;border-bottom:1px solid var(--line)}
th{font-weight:600;color:var(--soft);font-size:.82rem}
code,pre{font-family:ui-monospace,monospace;font-size:.87em}pre{background:var(--code);border:1px solid var(--line);border-radius:.4rem;padding:.8rem 1rem;overflow-x:auto;white-space:pre-wrap;overflow-wrap:anywhere;margin:.3rem 0}
.req{color:#c2410c;font-size:.8em}
@media(max-width:800px){td:first-child,td:last-child{overflow-wrap:anywhere}body{display:block}nav{position:static;height:auto;border-right:0;border-bottom:1px solid var(--line)}}
`;

/** What a Content-Security-Policy names the style sheet by. */
export const STYLE_HASH = `sha256-${createHash('sha256').update(STYLE).digest('base64')}`;

/** The page at the root: where to go from here. */
export function home(version: string): string {
  return document('Postern', '', `<h1>Postern</h1><p>A mail edge: mail comes in by SMTP and goes out to webhooks, and this is its API.</p>
<ul><li><a href="/docs">API reference</a></li><li><a href="/docs/openapi.json">OpenAPI description</a></li>
<li><a href="/healthz">Is it alive?</a></li><li><a href="/readyz">Is it ready to take mail?</a></li></ul><p class="soft">Version ${escape(version)}</p>`);
}

/** The reference: one page, complete, without script. */
export function reference(operations: readonly Operation[], origin: string): string {
  const entries = operations.map((operation) => toEntry(operation, origin === '' ? 'http://127.0.0.1:8080' : origin));
  const groups = [...Map.groupBy(entries, (entry) => entry.group)];
  const links = groups.map(([group, own]) => `<h2>${escape(group)}</h2><ul>${own.map((entry) => `<li><a href="#${idOf(entry)}">${escape(entry.path.slice(group.length + 2))}</a></li>`).join('')}</ul>`);
  const sections = groups.map(([group, own]) => `<h2>${escape(group)}</h2>${own.map(section).join('')}`);
  return document('Postern API', `<a href="/"><strong>Postern API</strong></a>${links.join('')}`, introduction(origin) + sections.join(''));
}

function introduction(origin: string): string {
  return `<h1>API reference</h1>
<p>Every operation is a POST to <code>${escape(origin)}/api/1.0/&lt;group&gt;/&lt;operation&gt;.json</code> with a JSON object that holds the <code>key</code> and the parameters.
<code>null</code> means absent; unknown parameters are ignored; a form will do where JSON is a burden. Every answer is JSON, and times are UTC. The same in a form for programs: <a href="/docs/openapi.json">openapi.json</a>.</p>
<p>An error is <code>{"status": "error", "code": …, "name": …, "message": …}</code>. A missing parameter has code -1 and <code>You must specify a &lt;name&gt; value</code>, a rule that failed
code -2 and <code>Validation error: {"&lt;field&gt;":"&lt;text&gt;"}</code> with every field that is wrong. Any operation can answer these:</p>${errorTable(commonErrors())}`;
}

function section(entry: Entry): string {
  const tag = entry.extension ? '<span class="tag">beyond the public ancestor</span>' : '';
  const fields = entry.fields.length > 0 ? fieldTable('Field', entry.fields, false) : '';
  const errors = entry.errors.length > 0 ? `<h4>Errors</h4>${errorTable(entry.errors)}` : '';
  return `<section id="${idOf(entry)}"><h3>${escape(entry.path)}${tag}</h3><p>${prose(entry.summary)}</p>
${entry.notes === '' ? '' : `<p class="soft">${prose(entry.notes)}</p>`}
<h4>Parameters</h4>${fieldTable('Parameter', entry.params, true)}
<h4>Answers: ${escape(entry.returns)}</h4>${fields}${errors}
<h4>Example</h4><pre><code>${escape(entry.request)}</code></pre><pre><code>${escape(entry.answer)}</code></pre></section>`;
}

function fieldTable(title: string, fields: readonly Field[], marked: boolean): string {
  const rows = fields.map((field) => `<tr><td><code>${escape(field.name)}</code>${marked && field.required ? ' <span class="req">required</span>' : ''}</td><td>${escape(field.type)}</td><td>${prose(field.description)}</td></tr>`);
  return `<table><thead><tr><th>${title}</th><th>Type</th><th>Meaning</th></tr></thead><tbody>${rows.join('')}</tbody></table>`;
}

function errorTable(errors: Entry['errors']): string {
  const rows = errors.map((error) => `<tr><td><code>${error.name}</code></td><td>${error.code}</td><td>${error.status}</td><td>${prose(error.when)}</td></tr>`);
  return `<table><thead><tr><th>Error</th><th>Code</th><th>HTTP</th><th>When</th></tr></thead><tbody>${rows.join('')}</tbody></table>`;
}

function document(title: string, nav: string, main: string): string {
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1"><title>${title}</title><style>${STYLE}</style></head>
<body>${nav === '' ? '<nav></nav>' : `<nav aria-label="Operations">${nav}</nav>`}<main>${main}</main></body></html>
`;
}

function idOf(entry: Entry): string {
  return entry.path.slice(1).replaceAll('/', '-');
}

/** Text with `code` in back quotes. */
function prose(text: string): string {
  return escape(text).replaceAll(/`([^`]+)`/g, '<code>$1</code>');
}

function escape(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;').replaceAll("'", '&#39;');
}
