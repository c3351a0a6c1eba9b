import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { call } from '../call.ts';
import { h } from '../h.ts';
import { useLoad } from '../load.ts';
import type { Answer } from '../operations.ts';
import { account } from '../session.ts';
import { Bars, Button, Dialog, Fault, Field } from './elements.ts';
import { followJob, JobProgress } from './job.ts';
import { count, number } from './text.ts';

// Drops: first the number, which has to be typed if it is not one mail that the visitor looks at.

/** Which mail: by id, or all that a search finds. */
type Wish =
  | { readonly ids: readonly string[] }
  | { readonly query: string; readonly state: 'waiting' | 'held' | 'dead' };

export function DropDialog({ wish, onClose }: { readonly wish: Wish; onClose(): void }): ComponentChildren {
  const [opened] = useState(() => Date.now()); // an old number is not shown
  const [answer, setAnswer] = useState<Answer<'inbound/drop'>>();
  const isQuery = 'query' in wish;
  const params = { ...wish, ...(isQuery && { query: wish.query || '*' }) };
  const { data, error, failedAt, again } = useLoad(
    `drop ${account.value?.id} ${JSON.stringify(wish)} ${opened}`,
    (stop) => call('inbound/drop', { ...params, dry_run: true }, stop),
  );
  const drop = async (matched: number) => {
    const asked = { ...params, at_most: matched };
    const started = await call('inbound/drop', asked);
    if (started.job !== null)
      followJob({
        operation: 'jobs/info',
        id: started.job,
        what: 'Drop',
        one: 'message',
        several: 'messages',
        of: started.matched,
        again: { operation: 'inbound/drop', params: asked },
      });
    setAnswer(started);
  };
  const question = () => {
    if (error) return h(Fault, { error, since: failedAt, again });
    if (!data) return h(Bars, { rows: 2 });
    const { matched } = data;
    if (matched === 0) return h('p', 'Nothing to drop');
    return h('div', [
      h('p', [`${count(matched, 'message')} will end without being posted. Senders are not notified.`]),
      h('p.faint', ['Dropped messages can be replayed until their content is deleted.']),
      h(Decision, {
        matched,
        label: `Drop ${number(matched)}`,
        kind: 'danger',
        isTyped: isQuery,
        decide: () => drop(matched),
        onClose,
      }),
    ]);
  };
  return h(Dialog, { title: 'Drop', onClose }, [
    answer
      ? h('div', { role: answer.job === null ? 'status' : undefined }, [
          answer.job === null ? h('p', `${count(answer.dropped, 'message')} dropped.`) : h(JobProgress),
          h('p.buttons', [h(Button, { label: 'Close', kind: 'main', onPress: onClose })]),
        ])
      : question(),
  ]);
}

/** The buttons below a number. Where `isTyped`, it has to be typed, so that nothing is dropped by a slip of the hand. */
export function Decision({
  matched,
  label,
  kind,
  isTyped,
  decide,
  onClose,
}: {
  readonly matched: number;
  readonly label: string;
  readonly kind: 'main' | 'danger';
  readonly isTyped: boolean;
  decide(): Promise<void>;
  onClose(): void;
}): ComponentChildren {
  const [typed, setTyped] = useState('');
  return h('div', [
    isTyped && h(Field, { label: `Type ${matched} to confirm`, value: typed, onValue: setTyped }),
    h('p.buttons', [
      h(Button, { label: 'Cancel', onPress: onClose }),
      h(Button, {
        label,
        kind,
        disabled: isTyped && typed.replaceAll(',', '').trim() !== String(matched),
        onPress: decide,
      }),
    ]),
  ]);
}
