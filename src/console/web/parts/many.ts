import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { h } from '../h.ts';
import { useLoad } from '../load.ts';
import { account } from '../session.ts';
import { Button, Field, Loading } from './elements.ts';
import type { IconName } from './icons.ts';
import { followJob, type Job, JobProgress } from './job.ts';
import { number } from './text.ts';

// Changes of many: first the number, then a button with the number, then the result or a job.

/** How many there are; the job that does it, if there are many. */
interface Counted {
  readonly matched: number;
  readonly job?: string | null;
}

type How = { readonly dry_run: true } | { readonly at_most: number };

interface ManyProps<A extends Counted> {
  /** What the count is of: another is counted anew. */
  readonly about: string;
  /** Counts them, or changes them unless more match by now. */
  change(how: How, stop?: AbortSignal): Promise<A>;
  /** How its job is followed. */
  readonly job: Omit<Job, 'id' | 'of'>;
  readonly nothing: string;
  /** The contents above the buttons. */
  explain(found: A): ComponentChildren;
  /** Whether these are complete. The buttons wait for them, so that they do not move under the pointer. */
  readonly isExplained?: boolean;
  label(matched: string): string;
  readonly kind: 'main' | 'danger';
  readonly icon?: IconName;
  /** Whether the number has to be typed, so that nothing is lost by a slip of the hand. */
  readonly isTyped?: boolean;
  done(answer: A): string;
  /** Shown with the number, and with the result. */
  note?(answer: A): ComponentChildren;
  onDone?(): void;
  onClose(): void;
}

/** Asks before it changes many, and shows the result. */
export function Many<A extends Counted>(props: ManyProps<A>) {
  const { about, onClose, onDone } = props;
  const [opened] = useState(() => Date.now()); // an old number is not shown
  const [answer, setAnswer] = useState<A>();
  const loaded = useLoad(`many ${account.value?.id} ${about} ${opened}`, (stop) =>
    props.change({ dry_run: true }, stop),
  );
  const { data, error } = loaded;
  const start = async (matched: number) => {
    const started = await props.change({ at_most: matched });
    if (started.job) followJob({ ...props.job, id: started.job, of: started.matched });
    setAnswer(started);
    onDone?.();
  };
  if (answer)
    return h('div', { role: answer.job ? undefined : 'status' }, [
      answer.job ? h(JobProgress) : h('p', props.done(answer)),
      props.note?.(answer),
      h('p.buttons', [h(Button, { label: 'Close', kind: 'main', onPress: onClose })]),
    ]);
  if (error || !data) return h(Loading, { of: loaded, rows: 2 });
  const { matched } = data;
  const { label, kind, icon, isTyped = false, isExplained = true } = props;
  return h('div', { role: 'status' }, [
    matched === 0 && h('p', props.nothing),
    props.explain(data),
    props.note?.(data),
    matched > 0 &&
      isExplained &&
      h(Decision, {
        matched,
        label: label(number(matched)),
        kind,
        ...(icon && { icon }),
        isTyped,
        decide: () => start(matched),
        onClose,
      }),
  ]);
}

interface DecisionProps extends Pick<ManyProps<Counted>, 'kind' | 'icon' | 'onClose'> {
  readonly matched: number;
  readonly label: string;
  readonly isTyped: boolean;
  decide(): Promise<void>;
}

function Decision({ matched, isTyped, decide, onClose, ...button }: DecisionProps) {
  const [typed, setTyped] = useState('');
  const disabled = isTyped && typed.replaceAll(',', '').trim() !== String(matched);
  return h('div', [
    isTyped && h(Field, { label: `Type ${matched} to confirm`, value: typed, onValue: setTyped }),
    h('p.buttons', [
      h(Button, { label: 'Cancel', onPress: onClose }),
      h(Button, { ...button, disabled, onPress: decide }),
    ]),
  ]);
}
