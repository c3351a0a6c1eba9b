import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { call } from '../call.ts';
import { h } from '../h.ts';
import { useLoad } from '../load.ts';
import type { Answer } from '../operations.ts';
import { Decision } from '../parts/drop.ts';
import { Bars, Button, Choice, Dialog, Fault, Field } from '../parts/elements.ts';
import { followJob, JobProgress } from '../parts/job.ts';
import { stateWord } from '../parts/states.ts';
import { count, number } from '../parts/text.ts';

// Changes of many deliveries of the host: first the number, then the button with the number in it.

interface Kind {
  readonly operation: 'host/retry' | 'host/pause' | 'host/resume' | 'host/drop';
  readonly label: string;
  /** What is counted. */
  readonly one: string;
  readonly several: string;
  readonly help: string;
  button(matched: string): string;
}

const DELIVERIES = { one: 'delivery', several: 'deliveries' } as const;
const ENDPOINTS = { one: 'endpoint', several: 'endpoints' } as const;

const KINDS: readonly Kind[] = [
  {
    operation: 'host/retry',
    label: 'Retry',
    ...DELIVERIES,
    help: 'They are retried now, and endpoints that are down are probed.',
    button: (matched) => `Retry ${matched} now`,
  },
  {
    operation: 'host/pause',
    label: 'Pause',
    ...ENDPOINTS,
    help: 'Nothing is sent to them for 7 days, or until you resume them; their accounts cannot. Mail is still accepted, and waits.',
    button: (matched) => `Pause ${matched}`,
  },
  {
    operation: 'host/resume',
    label: 'Resume',
    ...ENDPOINTS,
    help: 'Deliveries that wait for them are sent again, even if their accounts paused them.',
    button: (matched) => `Resume ${matched}`,
  },
  {
    operation: 'host/drop',
    label: 'Drop',
    ...DELIVERIES,
    help: 'They end without being delivered. Senders are not notified.',
    button: (matched) => `Drop ${matched}`,
  },
];

const HELP = 'account: url: kind: route: to: webhook: id: state: after: before:, or * for all';

/** Of deliveries by state, with a job if there are many; of endpoints with what waits for them. */
type Changed = Partial<Answer<'host/drop'> & Answer<'host/pause'>> & Pick<Answer<'host/drop'>, 'matched' | 'changed'>;

/** Asks what to do with what a query matches, shows how many that are, and does it. */
export function QueueChange({ query: given, onClose }: { readonly query: string; onClose(): void }): ComponentChildren {
  const [operation, setOperation] = useState<string>('host/retry');
  const [text, setText] = useState(given);
  const [query, setQuery] = useState(given);
  const [answer, setAnswer] = useState<Changed>();
  const kind = KINDS.find((one) => one.operation === operation) ?? KINDS[0];
  if (!kind) return null;
  return h(Dialog, { title: 'Change deliveries', onClose }, [
    answer
      ? h(Result, { kind, answer, onClose })
      : h(
          'form.form',
          {
            onSubmit: (event: Event) => {
              event.preventDefault();
              setQuery(text.trim());
            },
          },
          [
            h(Choice, {
              label: 'Action',
              value: operation,
              options: KINDS.map((one) => [one.operation, one.label] as const),
              onValue: setOperation,
            }),
            h(Field, { label: 'Filter', value: text, type: 'search', help: HELP, onValue: setText }),
            h('p', [h('button.button', { type: 'submit' }, 'Count')]),
            query !== '' && h(Question, { key: `${operation} ${query}`, kind, query, onAnswer: setAnswer, onClose }),
          ],
        ),
  ]);
}

function Question({
  kind,
  query,
  onAnswer,
  onClose,
}: {
  readonly kind: Kind;
  readonly query: string;
  onAnswer(answer: Changed): void;
  onClose(): void;
}): ComponentChildren {
  const [opened] = useState(() => Date.now()); // an old number is not shown
  const { operation } = kind;
  const { data, error, failedAt, again } = useLoad(
    `${operation} ${query} ${opened}`,
    (stop): Promise<Changed> => call(operation, { query, dry_run: true }, stop),
  );
  if (error) return h(Fault, { error, since: failedAt, again });
  if (!data) return h(Bars, { rows: 2 });
  const { matched, waiting, by_state: states = [] } = data;
  if (matched === 0) return h('p', { role: 'status' }, `No ${kind.several} match.`);
  const isDrop = operation === 'host/drop';
  const start = async () => {
    const answer: Changed = await call(operation, { query, at_most: matched });
    const { label: what, one, several } = kind;
    if (answer.job) followJob({ operation: 'host/job', id: answer.job, what, one, several, of: answer.matched });
    onAnswer(answer);
  };
  return h('div', { role: 'status' }, [
    h('p', [
      `${count(matched, kind.one, kind.several)}`,
      isDrop && ` (${states.map((one) => `${number(one.count)} ${stateWord(one.state).toLowerCase()}`).join(', ')})`,
      waiting !== undefined && `, with ${count(waiting, 'delivery', 'deliveries')} waiting`,
      `. ${kind.help}`,
    ]),
    h(Decision, {
      matched,
      label: kind.button(number(matched)),
      kind: isDrop ? 'danger' : 'main',
      isTyped: isDrop,
      decide: start,
      onClose,
    }),
  ]);
}

function Result({
  kind,
  answer,
  onClose,
}: {
  readonly kind: Kind;
  readonly answer: Changed;
  onClose(): void;
}): ComponentChildren {
  return h('div', { role: answer.job ? undefined : 'status' }, [
    answer.job ? h(JobProgress) : h('p', [`${kind.label} complete: ${count(answer.changed, kind.one, kind.several)}.`]),
    h('p.buttons', [h(Button, { label: 'Close', kind: 'main', onPress: onClose })]),
  ]);
}
