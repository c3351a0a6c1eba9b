import { createHash } from 'node:crypto';
import { escapeHtml } from '../../base/html.ts';
import type { Operation } from '../operation.ts';
import { commonErrors, type Entry, type Field, toEntry } from './reference.ts';

const STYLE = `
:root{color-scheme:light dark;--ink:#1b1d22;--soft:#5c6068;--line:#e1e2de;--ground:#f6f6f4;
  --paper:#fff;--mark:#2f4fc4;--warn:#b0261c;--hover:#f1f3f8}
@media(prefers-color-scheme:dark){:root{--ink:#e7e8ec;--soft:#a0a5b1;--line:#2b2f38;--ground:#0f1115;
  --paper:#15171c;--mark:#9bb2ff;--warn:#ff968b;--hover:#20242d}}
*{box-sizing:border-box}html{scroll-padding-top:1rem}[hidden]{display:none!important}
body{margin:0;font:.9375rem/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'Noto Sans',sans-serif;
  color:var(--ink);background:var(--paper);display:grid;grid-template-columns:17rem minmax(0,1fr)}
nav{position:sticky;top:0;height:100vh;overflow-y:auto;padding:1.25rem 1rem;background:var(--ground);
  border-right:1px solid var(--line);font-size:.9rem}
nav summary{padding:.35rem .6rem;border-radius:.4rem;font-weight:600;text-transform:capitalize;cursor:pointer}
nav summary:hover{background:var(--hover)}
nav ul{list-style:none;margin:0 0 .4rem;padding:0 0 0 1.5rem}nav a{display:block;padding:.2rem 0;text-decoration:none}
.alone{display:block}.alone main{margin:8vh auto 0}
.home{max-width:42rem}.home a{font-weight:600}.home dt{margin-top:.8rem}.home dd{margin:0;color:var(--soft)}
.filter{margin:1rem 0 0}.filter label{display:block;font-size:.8rem;color:var(--soft)}
.filter input{width:100%;font:inherit;padding:.35rem .6rem;border:1px solid var(--soft);border-radius:.4rem;
  color:inherit;background:var(--paper)}
.filter output{display:block;font-size:.8rem;color:var(--soft);min-height:1.3rem}
main{padding:2rem clamp(1rem,4vw,4rem);max-width:62rem}
a{color:var(--mark)}nav a:hover{text-decoration:underline}
:focus-visible{outline:2px solid var(--mark);outline-offset:2px}
h1{margin:0 0 1rem;font-size:1.5rem}main h2{margin:3rem 0 0;text-transform:capitalize}
section{border-top:1px solid var(--line);margin-top:1.5rem;padding-top:1.2rem}
section h3{font:600 1.1rem ui-monospace,monospace;margin:0 0 .4rem;overflow-wrap:anywhere}
h4{margin:1.2rem 0 .3rem;font-size:.8rem;text-transform:uppercase;letter-spacing:.05em;color:var(--soft)}
.tag{font:.72rem system-ui,sans-serif;border:1px solid var(--line);border-radius:1rem;padding:.1rem .6rem;
  color:var(--soft);margin-left:.6rem;vertical-align:middle}
.soft{color:var(--soft)}table{border-collapse:collapse;width:100%;font-size:.92rem}
th,td{text-align:left;vertical-align:top;padding:.35rem .8rem .35rem 0;border-bottom:1px solid var(--line)}
th{font-weight:600;color:var(--soft);font-size:.82rem}
code,pre{font-family:ui-monospace,monospace;font-size:.87em;overflow-wrap:break-word}
pre{background:var(--ground);border:1px solid var(--line);border-radius:.4rem;padding:.8rem 1rem;white-space:pre-wrap;
  margin:.3rem 0}
.req{color:var(--warn);font-size:.8em}
@media(max-width:800px){
  body{display:block}nav{position:static;height:auto;border-right:0;border-bottom:1px solid var(--line)}
  td,th,code{overflow-wrap:anywhere}
}
`;

/** Filters the operations as the user types; `/` focuses the field. The page is complete without it. */
const SCRIPT = `
const box = document.querySelector('.filter');
if (box) {
  const field = box.querySelector('input');
  const count = box.querySelector('output');
  const entries = [...document.querySelectorAll('section')].map((section) => ({
    section,
    link: document.querySelector('nav a[href="#' + section.id + '"]').parentElement,
    text: section.dataset.find.toLowerCase(),
  }));
  const groups = [...document.querySelectorAll('.group')];
  const filter = () => {
    const words = field.value.toLowerCase().split(/\\s+/).filter(Boolean);
    let shown = 0;
    for (const { section, link, text } of entries) {
      const found = words.every((word) => text.includes(word));
      section.hidden = link.hidden = !found;
      if (found) shown++;
    }
    for (const group of groups) {
      group.hidden = !group.querySelector('section:not([hidden]),li:not([hidden])');
      if (group.matches('details')) group.open = words.length > 0 && !group.hidden;
    }
    count.value = words.length === 0 ? '' : shown + ' of ' + entries.length + ' operations';
  };
  field.addEventListener('input', filter);
  // Without a filter one group of links is open at a time.
  for (const group of groups.filter((one) => one.matches('details')))
    group.addEventListener('toggle', () => {
      if (group.open && field.value === '')
        for (const other of groups) if (other !== group && other.matches('details')) other.open = false;
    });
  document.addEventListener('keydown', (event) => {
    if (event.key !== '/' || event.ctrlKey || event.metaKey || event.target === field) return;
    event.preventDefault();
    field.focus();
  });
  box.hidden = false;
  filter();
}
`;

const digest = (text: string) => `sha256-${createHash('sha256').update(text).digest('base64')}`;

/** Hashes of the style sheet and the script of these pages, for a Content-Security-Policy. */
export const PAGE_HASHES = { style: digest(STYLE), script: digest(SCRIPT) } as const;

/** The page at the root, with links to the others; `hasConsole`: the console is on. */
export function home(version: string, hasConsole: boolean): string {
  const pages = [
    ...(hasConsole
      ? [['/console/', 'Console', 'Search mail and refusals, see why mail waits or failed, retry and replay']]
      : []),
    ['/docs', 'API reference', 'Every operation, with examples'],
    ['/docs/openapi.json', 'OpenAPI description', 'The API in machine-readable form'],
    ['/healthz', 'Liveness check', '200 while the process is alive'],
    ['/readyz', 'Readiness check', '200 while mail is accepted'],
  ];
  const items = pages.map(([href, name, about]) => `<dt><a href="${href}">${name}</a></dt><dd>${about}</dd>`);
  return document(
    'Postern',
    '',
    `<div class="home"><h1>Postern</h1>
<p>A mail server for applications: it receives mail by SMTP and posts it to webhooks, and sends mail.</p>
<dl>${items.join('')}</dl><p class="soft">Version ${escapeHtml(version)}</p></div>`,
  );
}

/** The reference: one page, complete without its script, which only filters. */
export function reference(operations: readonly Operation[], origin: string): string {
  const entries = operations.map((operation) => toEntry(operation, origin === '' ? 'http://127.0.0.1:8080' : origin));
  const groups = [...Map.groupBy(entries, (entry) => entry.group)];
  const links = groups.map(([group, own]) => {
    const items = own.map(
      (entry) => `<li><a href="#${idOf(entry)}">${escapeHtml(entry.path.slice(group.length + 2))}</a></li>`,
    );
    return `<details class="group"><summary>${escapeHtml(group)}</summary><ul>${items.join('')}</ul></details>`;
  });
  const sections = groups.map(
    ([group, own]) => `<div class="group"><h2>${escapeHtml(group)}</h2>${own.map(section).join('')}</div>`,
  );
  return document(
    'Postern API',
    `<a href="/"><strong>Postern API</strong></a>${FILTER}${links.join('')}`,
    introduction(origin) + sections.join(''),
  );
}

const FILTER = `<div class="filter" hidden><label for="filter">Filter operations (press /)</label>
<input id="filter" type="search" autocomplete="off" spellcheck="false"><output for="filter"></output></div>`;

function introduction(origin: string): string {
  return `<h1>API reference</h1>
<p>Every operation is a POST to <code>${escapeHtml(origin)}/api/1.0/&lt;group&gt;/&lt;operation&gt;.json</code>
with a JSON object that contains the <code>key</code> and the parameters.
<code>null</code> means absent; unknown parameters are ignored; a form is accepted too.
The key may be sent as a bearer token (<code>Authorization: Bearer KEY</code>) instead.
Every response is JSON, and times are UTC, <code>YYYY-MM-DD HH:MM:SS</code>.
For programs: <a href="/docs/openapi.json">openapi.json</a>.</p>
<p>An error is <code>{"status": "error", "code": …, "name": …, "message": …}</code>.
A missing parameter has code -1 and <code>You must specify a &lt;name&gt; value</code>,
an invalid one has code -2 and <code>Validation error: {"&lt;field&gt;":"&lt;text&gt;"}</code> with every invalid field.
Any operation can return these:</p>${errorTable(commonErrors())}`;
}

function section(entry: Entry): string {
  const tag = entry.extension ? '<span class="tag">not part of the Mandrill API</span>' : '';
  const fields = entry.fields.length > 0 ? fieldTable('Field', entry.fields, false) : '';
  const errors = entry.errors.length > 0 ? `<h4>Errors</h4>${errorTable(entry.errors)}` : '';
  return `<section id="${idOf(entry)}" data-find="${escapeHtml(`${entry.path} ${entry.summary}`)}">
<h3>${escapeHtml(entry.path)}${tag}</h3><p>${prose(entry.summary)}</p>
${entry.notes === '' ? '' : `<p class="soft">${prose(entry.notes)}</p>`}
<h4>Parameters</h4>${fieldTable('Parameter', entry.params, true)}
<h4>Returns: ${escapeHtml(entry.returns)}</h4>${fields}${errors}
<h4>Example</h4>${code(entry.request)}${code(entry.answer)}</section>`;
}

const code = (text: string): string => `<pre><code>${escapeHtml(text)}</code></pre>`;

/** A table, with HTML in its cells. */
function table(titles: readonly string[], rows: readonly (readonly (string | number)[])[]): string {
  const head = titles.map((title) => `<th>${title}</th>`).join('');
  const body = rows.map((cells) => `<tr>${cells.map((cell) => `<td>${cell}</td>`).join('')}</tr>`).join('');
  return `<table><thead><tr>${head}</tr></thead><tbody>${body}</tbody></table>`;
}

function fieldTable(title: string, fields: readonly Field[], marked: boolean): string {
  const mark = (field: Field) => (marked && field.required ? ' <span class="req">required</span>' : '');
  return table(
    [title, 'Type', 'Meaning'],
    fields.map((field) => [
      `<code>${escapeHtml(field.name)}</code>${mark(field)}`,
      escapeHtml(field.type),
      prose(field.description),
    ]),
  );
}

function errorTable(errors: Entry['errors']): string {
  return table(
    ['Error', 'Code', 'HTTP', 'When'],
    errors.map(({ name, code, status, when }) => [`<code>${name}</code>`, code, status, prose(when)]),
  );
}

function document(title: string, nav: string, main: string): string {
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<title>${title}</title><style>${STYLE}</style></head>
<body${nav === '' ? ' class="alone"' : ''}>${nav === '' ? '' : `<nav aria-label="Operations">${nav}</nav>`}
<main>${main}</main><script>${SCRIPT}</script></body></html>
`;
}

function idOf(entry: Entry): string {
  return entry.path.slice(1).replaceAll('/', '-');
}

/** Text with `code` in back quotes. */
function prose(text: string): string {
  return escapeHtml(text).replaceAll(/`([^`]+)`/g, '<code>$1</code>');
}
