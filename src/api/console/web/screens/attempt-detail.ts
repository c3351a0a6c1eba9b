import { type ComponentChildren, h } from 'preact';
import { Facts } from '../parts/elements.ts';
import { count, plain, span } from '../parts/text.ts';
import type { Attempt, AttemptDetail, Header, MailStory, TimelineEntry } from '../records.ts';

// How an attempt got there, and what was said.

/** What the queue has of the attempts of a timeline: it remembers the last ones, the journal more. */
export function detailsOf({ timeline, deliveries }: MailStory): ReadonlyMap<TimelineEntry, AttemptDetail> {
  const entries = timeline.filter(({ kind }) => kind === 'attempt').toReversed();
  const attempts: readonly Attempt[] = (deliveries[0]?.attempts ?? []).toReversed();
  const details = new Map<TimelineEntry, AttemptDetail>();
  for (const [i, entry] of entries.entries()) {
    const attempt = attempts[i];
    if (attempt?.detail && attempt.time === entry.at) details.set(entry, attempt.detail);
  }
  return details;
}

export function Detail({ detail }: { readonly detail: AttemptDetail }): ComponentChildren {
  const { request_headers: request, response_headers: response, headers_left_out: leftOut } = detail;
  return h(
    'details',
    { class: 'attempt' },
    h('summary', null, 'Details'),
    h(Facts, {
      rows: [
        ['Server', `${detail.address ?? 'no connection'}, ${detail.tls ?? 'no TLS'}`],
        ['Time', timesOf(detail)],
      ],
    }),
    h(Headers, { title: 'Request headers', headers: request }),
    h(Headers, { title: 'Response headers', headers: response }),
    leftOut > 0 && h('p', { class: 'faint' }, `${count(leftOut, 'header')} left out.`),
  );
}

function timesOf({ reused, dns_ms, connect_ms, tls_ms, first_byte_ms }: AttemptDetail): string {
  const parts = [
    ['look-up', dns_ms],
    ['connecting', connect_ms],
    ['TLS', tls_ms],
    ['first byte', first_byte_ms],
  ] as const;
  const known = parts.flatMap(([name, ms]) => (ms === null ? [] : [`${name} ${span(ms)}`]));
  return [...(reused ? ['over an open connection'] : []), ...known].join(', ') || 'not known';
}

function Headers({
  title,
  headers,
}: {
  readonly title: string;
  readonly headers: readonly Header[];
}): ComponentChildren {
  if (headers.length === 0) return null;
  return h(
    'div',
    null,
    h('p', { class: 'title' }, title),
    h(
      'dl',
      { class: 'headers' },
      headers.map(({ name, value }, i) =>
        h('div', { key: i }, h('dt', null, plain(name)), h('dd', null, plain(value))),
      ),
    ),
  );
}
