import { useState } from 'preact/hooks';
import { call } from '../call.ts';
import { curlOf } from '../curl.ts';
import { h } from '../h.ts';
import { Button, Facts, Headers } from '../parts/elements.ts';
import { Copy } from '../parts/form.ts';
import { count, span } from '../parts/text.ts';
import type { AttemptDetail, Mail, MailStory } from '../records.ts';
import { may } from '../session.ts';

// The connection of an attempt, its request and its response.

/** The attempts that the queue remembers, by their time; the journal remembers more, without details. */
export function detailsOf({ deliveries }: MailStory): ReadonlyMap<string, AttemptDetail> {
  const details = new Map<string, AttemptDetail>();
  for (const { time, detail } of deliveries[0]?.attempts ?? []) if (detail) details.set(time, detail);
  return details;
}

export function Detail({ detail, mail }: { readonly detail: AttemptDetail; readonly mail: Mail }) {
  const { request_headers: request, response_headers: response, headers_left_out: leftOut } = detail;
  return h('details.attempt', [
    h('summary', 'Details'),
    h(Facts, {
      rows: [
        ['Server', `${detail.address ?? 'no connection'}, ${detail.tls ?? 'no TLS'}`],
        ['Time', timesOf(detail)],
      ],
    }),
    request.length > 0 && h('div', [h('p.title', 'Request headers'), h(Headers, { fields: request })]),
    response.length > 0 && h('div', [h('p.title', 'Response headers'), h(Headers, { fields: response })]),
    leftOut > 0 && h('p.faint', `${count(leftOut, 'header')} omitted.`),
    request.length > 0 && h(AsCurl, { detail, mail }),
  ]);
}

/** The POST as a command. Its body is rendered again, for people who may read it. */
function AsCurl({ detail, mail }: { readonly detail: AttemptDetail; readonly mail: Mail }) {
  const [line, setLine] = useState<string>();
  const show = async () => {
    const readable = mail.kept && may('inbound/payload');
    const payload = readable ? await call('inbound/payload', { id: mail.id }) : undefined;
    setLine(curlOf({ url: mail.url, headers: detail.request_headers, payload }));
  };
  if (line === undefined) return h(Button, { label: 'Show as curl', kind: 'quiet', onPress: show });
  return h('div', [
    h('pre.code', { tabIndex: 0, dir: 'ltr' }, line),
    h('p.faint', 'Signatures, passwords and the URL query are omitted.'),
    line.endsWith('@body') && h('p.faint', ['Save what the Payload tab shows to a file named body first.']),
    h(Copy, { text: line, label: 'Copy command' }),
  ]);
}

function timesOf({ reused, dns_ms, connect_ms, tls_ms, first_byte_ms }: AttemptDetail): string {
  const parts = [
    ['DNS', dns_ms],
    ['connect', connect_ms],
    ['TLS', tls_ms],
    ['first byte', first_byte_ms],
  ] as const;
  const known = parts.flatMap(([name, ms]) => (ms === null ? [] : [`${name} ${span(ms)}`]));
  return [...(reused ? ['reused connection'] : []), ...known].join(', ') || 'unknown';
}
