import { useState } from 'preact/hooks';
import { call } from '../call.ts';
import { h } from '../h.ts';
import { useCall } from '../load.ts';
import type { Answer } from '../operations.ts';
import { Dialog } from './elements.ts';
import { jobOfMail } from './job.ts';
import { Many } from './many.ts';
import { answerOf } from './states.ts';
import { count, number, shortUrl } from './text.ts';

// Another attempt for all that a search finds and that waits: first the number, and what it waits for.

const MOST_CAUSES = 3;

export function RetryDialog({
  query,
  onClose,
}: {
  /** Without its state. */
  readonly query: string;
  onClose(): void;
}) {
  const params = { query: query || '*', state: 'waiting' };
  return h(Dialog, { title: 'Retry now', onClose }, [
    h(Many<Answer<'inbound/retry'>>, {
      about: `retry ${query}`,
      change: (how, stop) => call('inbound/retry', { ...params, ...how }, stop),
      job: jobOfMail('Retry', 'inbound/retry', params),
      nothing: 'Nothing to retry',
      explain: ({ matched }) =>
        matched > 0 && [
          h('p', `${count(matched, 'message')} will be posted now.`),
          h(WaitsFor, { query }),
          h('p.faint', [
            'An endpoint that is down gets one message first, and the rest if it accepts that one. ' +
              'Paused endpoints stay paused.',
          ]),
        ],
      label: (matched) => `Retry ${matched} now`,
      kind: 'main',
      done: ({ retried }) => `Retrying ${count(retried, 'message')}.`,
      onClose,
    }),
  ]);
}

/** The endpoints that it goes to, with their last answers, the most frequent first. */
function WaitsFor({ query }: { readonly query: string }) {
  const [opened] = useState(() => Date.now());
  const { data } = useCall('inbound/causes', { query: `${query} state:waiting` }, opened);
  if (!data) return null;
  return h('ul', [
    data.causes
      .slice(0, MOST_CAUSES)
      .map((cause) =>
        h('li', { key: `${cause.url} ${answerOf(cause)}` }, [
          `${number(cause.count)} to ${shortUrl(cause.url)}, ` +
            `${answerOf(cause) ? `last response ${answerOf(cause)}` : 'not attempted yet'}`,
        ]),
      ),
  ]);
}
