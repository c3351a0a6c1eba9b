import { useState } from 'preact/hooks';
import { call } from '../call.ts';
import { h } from '../h.ts';
import type { Answer } from '../operations.ts';
import { Choice, Dialog, Field } from '../parts/elements.ts';
import { OnHosts } from '../parts/hosts.ts';
import { Many } from '../parts/many.ts';
import { stateWord } from '../parts/states.ts';
import { count, number } from '../parts/text.ts';

// Changes of many deliveries on all hosts: first the number, then the button with the number in it.

interface Kind {
  readonly operation: 'host/retry' | 'host/pause' | 'host/resume' | 'host/drop';
  readonly label: string;
  /** The noun for the count. */
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
    help:
      'Nothing is sent to them for 7 days, or until you resume them; their accounts cannot. Mail is ' +
      'still accepted, and waits.',
    button: (matched) => `Pause ${matched}`,
  },
  {
    operation: 'host/resume',
    label: 'Resume',
    ...ENDPOINTS,
    help: 'What waits for them is sent, even if their accounts paused them.',
    button: (matched) => `Resume ${matched}`,
  },
  {
    operation: 'host/drop',
    label: 'Drop',
    ...DELIVERIES,
    help: 'They will not be delivered. Senders are not notified.',
    button: (matched) => `Drop ${matched}`,
  },
];

const HELP = 'account: url: kind: route: to: webhook: id: state: after: before:, or * for all';

/** Of deliveries by state, with a job if there are many; of endpoints with what waits for them. */
type Changed = Partial<Answer<'host/drop'> & Answer<'host/pause'>> &
  Pick<Answer<'host/drop'>, 'matched' | 'changed' | 'hosts'>;

/** Offers actions for the matches of a query, shows their number, and carries them out. */
export function QueueChange({ query: given, onClose }: { readonly query: string; onClose(): void }) {
  const [operation, setOperation] = useState<string>('host/retry');
  const [text, setText] = useState(given);
  const [query, setQuery] = useState(given);
  const [isDone, setDone] = useState(false);
  const kind = KINDS.find((one) => one.operation === operation) ?? KINDS[0];
  if (!kind) return null;
  const ask = (event: Event) => {
    event.preventDefault();
    setQuery(text.trim());
  };
  return h(Dialog, { title: 'Change deliveries', onClose }, [
    !isDone &&
      h('form.form', { onSubmit: ask }, [
        h(Choice, {
          label: 'Action',
          value: operation,
          options: KINDS.map((one) => [one.operation, one.label] as const),
          onValue: setOperation,
        }),
        h(Field, { label: 'Filter', value: text, type: 'search', help: HELP, onValue: setText }),
        h('p', [h('button.button', { type: 'submit' }, 'Count')]),
      ]),
    query !== '' && h(Question, { key: `${operation} ${query}`, kind, query, onDone: () => setDone(true), onClose }),
  ]);
}

function Question({
  kind: { operation, label: what, one, several, help, button },
  query,
  onDone,
  onClose,
}: {
  readonly kind: Kind;
  readonly query: string;
  onDone(): void;
  onClose(): void;
}) {
  const isDrop = operation === 'host/drop';
  return h(Many<Changed>, {
    about: `${operation} ${query}`,
    change: (how, stop) => call(operation, { query, ...how }, stop),
    job: { operation: 'host/job', what, one, several },
    nothing: `No ${several} match.`,
    explain: ({ matched, waiting, by_state: states = [] }) =>
      matched > 0 &&
      h('p', [
        count(matched, one, several),
        isDrop && ` (${states.map((at) => `${number(at.count)} ${stateWord(at.state).toLowerCase()}`).join(', ')})`,
        waiting !== undefined && `, with ${count(waiting, 'delivery', 'deliveries')} waiting`,
        `. ${help}`,
      ]),
    note: ({ hosts }) => h(OnHosts, { hosts }),
    label: button,
    kind: isDrop ? 'danger' : 'main',
    isTyped: isDrop,
    done: ({ changed }) => `${what} complete: ${count(changed, one, several)}.`,
    onDone,
    onClose,
  });
}
