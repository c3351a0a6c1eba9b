import { type ComponentChildren, h } from 'preact';
import { call } from '../call.ts';
import { Confirm } from '../parts/form.ts';
import { plain } from '../parts/text.ts';
import type { InboundRoute } from '../records.ts';

/** Asks before a route is removed. */
export function RemoveRoute({
  route: { id, pattern },
  removed,
  onClose,
}: {
  readonly route: InboundRoute;
  removed(id: string): void;
  onClose(): void;
}): ComponentChildren {
  return h(
    Confirm,
    {
      title: `Remove route ${id}?`,
      label: 'Remove it',
      onConfirm: async () => {
        await call('inbound/delete-route', { id });
        removed(id);
      },
      onClose,
    },
    h(
      'p',
      null,
      'Mail to ',
      h('code', null, plain(pattern)),
      ' then matches another route, or is refused with 550. Mail that was taken already is still posted.',
    ),
  );
}
