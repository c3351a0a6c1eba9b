import { z } from 'zod';
import { optional } from '../../base/schema.ts';
import type { WhitelistRow } from '../../store/rows/lists.ts';
import { operation } from '../operation.ts';
import { bool, record, str, strOrNull, time, toTime } from './fields.ts';
import { addressPrefix, listAddress } from './rejects.ts';
import { MAX_LIST } from './stats.ts';

const email = str('the address, in lower case');

const whitelistEntry = record('whitelist entry', {
  email,
  detail: strOrNull('why the address was whitelisted; null without a comment'),
  created_at: time('when it was added'),
});

function toWhitelistEntry({ email, detail, createdAt }: WhitelistRow) {
  return { email, detail, created_at: toTime(createdAt) };
}

/** Newer clients of Mandrill call the same operations by another name. */
function operationsAt(group: '/whitelists' | '/allowlists') {
  const extension = group === '/allowlists';
  const path = <N extends string>(name: N) => `${group}/${name}` as const;
  const known = { extension, notes: extension ? 'The newer name of the operation under /whitelists.' : '' };
  return [
    operation({
      ...known,
      path: path('add'),
      access: 'settings',
      summary: 'Adds an address to the whitelist and removes it from the rejection list.',
      notes: extension
        ? known.notes
        : 'While it is whitelisted, neither events nor calls add it to the rejection list. Adding it again ' +
          'succeeds and may change the comment. Adding an address does not affect the reputation; deleting it later ' +
          'does, if adding it removed entries that events had created.',
      params: {
        email: listAddress,
        comment: optional(z.string().max(255)).describe('why, at most 255 characters'),
      },
      returns: z.object({
        email,
        added: bool('whether the address is on the whitelist now'),
      }),
      example: { email: 'ann@example.com', comment: 'a colleague' },
      async handle({ email, comment = '' }, { lists }) {
        await lists.whitelist(email, comment === '' ? null : comment);
        return { email, added: true };
      },
    }),
    operation({
      ...known,
      path: path('list'),
      access: 'mail',
      summary: 'Lists the whitelist, sorted by address.',
      notes: extension ? known.notes : `Up to ${MAX_LIST} entries; an export contains all of them.`,
      params: { email: addressPrefix },
      returns: z.array(whitelistEntry),
      async handle({ email }, { store }) {
        const search = email === undefined || email === '' ? {} : { email: { startsWith: email } };
        return (await store.whitelists.many({ ...search, removed: false }, { sort: 'email', limit: MAX_LIST })).map(
          toWhitelistEntry,
        );
      },
    }),
    operation({
      ...known,
      path: path('delete'),
      access: 'settings',
      summary: 'Removes an address from the whitelist.',
      params: { email: listAddress },
      returns: z.object({ email, deleted: bool('whether it was on the whitelist') }),
      example: { email: 'friend@example.com' },
      async handle({ email }, { lists, counters }) {
        const removed = await lists.unwhitelist(email);
        // Otherwise this would allow deleting entries of the rejection list at no cost.
        for (const subaccount of removed?.overruled ?? []) await counters.countReset(subaccount);
        return { email, deleted: removed !== undefined };
      },
    }),
  ];
}

export const whitelistOperations = [...operationsAt('/whitelists'), ...operationsAt('/allowlists')];
