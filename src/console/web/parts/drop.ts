import type { ComponentChildren } from 'preact';
import { call } from '../call.ts';
import { h } from '../h.ts';
import type { Answer } from '../operations.ts';
import { Dialog } from './elements.ts';
import { Many } from './many.ts';
import type { OpenState } from './states.ts';
import { count } from './text.ts';

/** The messages to drop: by id, or all results of a search. */
type DropTarget = { readonly ids: readonly string[] } | { readonly query: string; readonly state: OpenState };

/** Drops. The number has to be typed, except for the one message that is open. */
export function DropDialog({ wish, onClose }: { readonly wish: DropTarget; onClose(): void }): ComponentChildren {
  const isQuery = 'query' in wish;
  const params = { ...wish, ...(isQuery && { query: wish.query || '*' }) };
  return h(Dialog, { title: 'Drop', onClose }, [
    h(Many<Answer<'inbound/drop'>>, {
      about: `drop ${JSON.stringify(wish)}`,
      count: (stop) => call('inbound/drop', { ...params, dry_run: true }, stop),
      start: (matched) => call('inbound/drop', { ...params, at_most: matched }),
      job: (matched) => ({
        ...{ operation: 'jobs/info', what: 'Drop', one: 'message', several: 'messages' },
        again: { operation: 'inbound/drop', params: { ...params, at_most: matched } },
      }),
      nothing: 'Nothing to drop',
      explain: ({ matched }) =>
        matched > 0 && [
          h('p', [`${count(matched, 'message')} will end without being posted. Senders are not notified.`]),
          h('p.faint', ['Dropped messages can be replayed until their content is deleted.']),
        ],
      label: (matched) => `Drop ${matched}`,
      kind: 'danger',
      isTyped: isQuery,
      done: ({ dropped }) => `${count(dropped, 'message')} dropped.`,
      onClose,
    }),
  ]);
}
