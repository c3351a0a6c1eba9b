import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { call } from '../call.ts';
import { h } from '../h.ts';
import { useLoad } from '../load.ts';
import type { Answer } from '../operations.ts';
import { account } from '../session.ts';
import { Decision } from './drop.ts';
import { Bars, Button, Dialog, Fault } from './elements.ts';
import { followJob, JobProgress } from './job.ts';
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
}): ComponentChildren {
  const [opened] = useState(() => Date.now()); // an old number is not shown
  const [answer, setAnswer] = useState<Answer<'inbound/retry'>>();
  const params = { query: query || '*', state: 'waiting' };
  const { data, error, failedAt, again } = useLoad(`retry ${account.value?.id} ${query} ${opened}`, (stop) =>
    call('inbound/retry', { ...params, dry_run: true }, stop),
  );
  const retry = async (matched: number) => {
    const asked = { ...params, at_most: matched };
    const started = await call('inbound/retry', asked);
    if (started.job !== null)
      followJob({
        operation: 'jobs/info',
        id: started.job,
        what: 'Retry',
        one: 'message',
        several: 'messages',
        of: started.matched,
        again: { operation: 'inbound/retry', params: asked },
      });
    setAnswer(started);
  };
  const question = () => {
    if (error) return h(Fault, { error, since: failedAt, again });
    if (!data) return h(Bars, { rows: 2 });
    const { matched } = data;
    if (matched === 0) return h('p', 'Nothing to retry');
    return h('div', [
      h('p', `${count(matched, 'message')} will be posted now.`),
      h(WaitsFor, { query, opened }),
      h('p.faint', [
        'An endpoint that is down gets one message first, and the rest if it accepts that one. Paused endpoints stay paused.',
      ]),
      h(Decision, {
        matched,
        label: `Retry ${number(matched)} now`,
        kind: 'main',
        isTyped: false,
        decide: () => retry(matched),
        onClose,
      }),
    ]);
  };
  return h(Dialog, { title: 'Retry now', onClose }, [
    answer
      ? h('div', { role: answer.job === null ? 'status' : undefined }, [
          answer.job === null ? h('p', `Retrying ${count(answer.retried, 'message')}.`) : h(JobProgress),
          h('p.buttons', [h(Button, { label: 'Close', kind: 'main', onPress: onClose })]),
        ])
      : question(),
  ]);
}

/** The endpoints that it goes to, with their last answers, the most frequent first. */
function WaitsFor({ query, opened }: { readonly query: string; readonly opened: number }): ComponentChildren {
  const { data } = useLoad(`waiting ${account.value?.id} ${query} ${opened}`, (stop) =>
    call('inbound/causes', { query: `${query} state:waiting` }, stop),
  );
  if (!data) return null;
  return h('ul', [
    data.causes
      .slice(0, MOST_CAUSES)
      .map((cause) =>
        h('li', { key: `${cause.url} ${answerOf(cause)}` }, [
          `${number(cause.count)} to ${shortUrl(cause.url)}, ${answerOf(cause) ? `last response ${answerOf(cause)}` : 'not attempted yet'}`,
        ]),
      ),
  ]);
}
