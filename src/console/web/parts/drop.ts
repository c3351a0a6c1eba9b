import { call } from '../call.ts';
import { h } from '../h.ts';
import type { Answer } from '../operations.ts';
import { Dialog } from './elements.ts';
import { jobOfMail } from './job.ts';
import { Many } from './many.ts';
import type { OpenState } from './states.ts';
import { count } from './text.ts';

/** The messages to drop: by id, or all results of a search. */
type DropTarget = { readonly ids: readonly string[] } | { readonly query: string; readonly state: OpenState };

/** Drops. The number has to be typed, except for the one message that is open. */
export function DropDialog({ wish, onClose }: { readonly wish: DropTarget; onClose(): void }) {
  const isQuery = 'query' in wish;
  const params = { ...wish, ...(isQuery && { query: wish.query || '*' }) };
  return h(Dialog, { title: 'Drop', onClose }, [
    h(Many<Answer<'inbound/drop'>>, {
      about: `drop ${JSON.stringify(wish)}`,
      change: (how, stop) => call('inbound/drop', { ...params, ...how }, stop),
      job: jobOfMail('Drop', 'inbound/drop', params),
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
