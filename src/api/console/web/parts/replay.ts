import { type ComponentChildren, h } from 'preact';
import { useState } from 'preact/hooks';
import { call } from '../call.ts';
import { useLoad } from '../load.ts';
import { account } from '../session.ts';
import { Bars, Button, Dialog, Fault } from './elements.ts';
import { useJob } from './job.ts';
import { count, number } from './text.ts';

// Replays of many: first the number, then the button with the number in it.

/** Which mail: by id, or all that a search finds. */
export type Wish =
  | { readonly ids: readonly string[] }
  | { readonly query: string; readonly state: 'dead' | 'delivered' | 'dropped' | 'held' };

interface Answer {
  readonly matched: number;
  readonly replayed: number;
  /** Deliveries that the queue has deleted. */
  readonly forgotten: number;
  /** The job that does it, if there are many. */
  readonly job: string | null;
}

const replay = (wish: Wish, dryRun: boolean, stop?: AbortSignal) =>
  call<Answer>(
    'inbound/replay',
    { ...wish, ...('query' in wish && { query: wish.query || '*' }), ...(dryRun && { dry_run: true }) },
    stop,
  );

export function ReplayDialog({ wish, onClose }: { readonly wish: Wish; onClose(): void }): ComponentChildren {
  const asked = useLoad(`replay ${account.value?.id} ${JSON.stringify(wish)} ${useOnce()}`, (stop) =>
    replay(wish, true, stop),
  );
  const [answer, setAnswer] = useState<Answer>();
  const start = async () => setAnswer(await replay(wish, false));
  return h(
    Dialog,
    { title: 'Replay', onClose },
    answer ? h(Result, { answer, onClose }) : h(Question, { asked, start, onClose }),
  );
}

/** A number of this dialog, so that an old answer is not shown. */
function useOnce(): number {
  const [number] = useState(() => Date.now());
  return number;
}

function Question({
  asked,
  start,
  onClose,
}: {
  readonly asked: ReturnType<typeof useLoad<Answer>>;
  start(): Promise<void>;
  onClose(): void;
}): ComponentChildren {
  const { data, error, failedAt, again } = asked;
  if (error) return h(Fault, { error, since: failedAt, again });
  if (!data) return h(Bars, { rows: 2 });
  const { matched, forgotten } = data;
  const left =
    forgotten > 0 &&
    `${count(forgotten, 'other')} can no longer be replayed: the queue has deleted ${forgotten === 1 ? 'it' : 'them'}.`;
  if (matched === 0)
    return h('div', null, h('p', null, 'Nothing of this can be replayed. '), left && h('p', null, left));
  return h(
    'div',
    null,
    h(
      'p',
      null,
      `${count(matched, 'mail')} will be posted again, with the same webhook-id as before. Nothing has been moved yet.`,
    ),
    left && h('p', { class: 'faint' }, left),
    h(
      'p',
      { class: 'buttons' },
      h(Button, { label: 'Cancel', onPress: onClose }),
      h(Button, { label: `Replay ${number(matched)}`, kind: 'main', icon: 'replay', onPress: start }),
    ),
  );
}

function Result({ answer, onClose }: { readonly answer: Answer; onClose(): void }): ComponentChildren {
  const { job, failed } = useJob('jobs/info', answer.job);
  const done = answer.job === null ? answer.replayed : (job?.done ?? 0);
  const of = answer.job === null ? answer.replayed : (job?.of ?? answer.matched);
  return h(
    'div',
    { role: 'status' },
    answer.job !== null && h('progress', { max: of, value: done, 'aria-label': 'Replayed' }),
    h(
      'p',
      null,
      answer.job === null || job?.state === 'done'
        ? `${count(done, 'mail')} put on the queue again.`
        : `${number(done)} of ${number(of)} put on the queue again. This goes on if you close the window.`,
    ),
    (job?.error ?? failed) && h('p', { class: 'wrong' }, job?.error ?? failed),
    h('p', { class: 'buttons' }, h(Button, { label: 'Close', kind: 'main', onPress: onClose })),
  );
}
