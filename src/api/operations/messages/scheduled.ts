import { z } from 'zod';
import { optional, text, timestamp } from '../../../base/schema.ts';
import { pagesByTime } from '../../../store/pages.ts';
import type { ScheduledRow } from '../../../store/rows/messages.ts';
import { type Call, listOperation, operation } from '../../operation.ts';
import { mapPages } from '../../streamed-lists.ts';
import { record, str, time, toTime } from '../fields.ts';
import { keyOf } from './send.ts';

const scheduledRecord = record('scheduled message', {
  _id: str('the id of the message'),
  created_at: time('when it was submitted'),
  send_at: time('when it will be sent'),
  from_email: str('address of the sender'),
  to: str('the recipient'),
  subject: str('the subject'),
});

function toScheduledRecord(row: ScheduledRow): z.input<typeof scheduledRecord> {
  return {
    _id: row.id,
    created_at: toTime(row.createdAt),
    send_at: toTime(row.sendAt),
    from_email: row.sender,
    to: row.email,
    subject: row.subject,
  };
}

const messageId = text(255).describe('id of the message, as returned by sending or by /messages/list-scheduled');

/** Returns the row of a scheduled message, which may have left already. Throws Unknown_Message. */
async function findScheduled(id: string, { store, orRefuse }: Call<'Unknown_Message'>): Promise<ScheduledRow> {
  return orRefuse(await store.scheduled.one({ id }), 'Unknown_Message', id);
}

const list = listOperation({
  path: '/messages/list-scheduled',
  access: 'mail',
  summary: 'Lists scheduled messages, the next ones first.',
  notes: 'Returns all of them.',
  params: { to: optional(z.string().max(1000)).describe('only those to this address') },
  returns: z.array(scheduledRecord),
  example: { to: 'later@example.com' },
  pages({ to }, { store, now }) {
    const only = to === undefined || to.trim() === '' ? {} : { email: keyOf(to) };
    const filter = { ...only, state: { in: [null, 'moved'] } };
    const rows = pagesByTime(store.scheduled, 'sendAt', { filter, after: now() });
    return mapPages(rows, (page) => page.map(toScheduledRecord));
  },
});

const cancel = operation({
  path: '/messages/cancel-scheduled',
  access: 'settings',
  summary: 'Cancels a scheduled message and returns it.',
  notes:
    'It is not sent, even if it is queued on another host or that host is down. If it is already being sent, the ' +
    'error is Unknown_Message, and its message says so.',
  params: { id: messageId },
  returns: scheduledRecord,
  errors: ['Unknown_Message'],
  example: { id: '5c1e0d0000000000000000000000000b' },
  async handle({ id }, call) {
    const row = await findScheduled(id, call);
    if ((await call.messages.cancel(row)) === 'late') throw call.refuse('Unknown_Message', id, 'late');
    return toScheduledRecord(row);
  },
});

const reschedule = operation({
  path: '/messages/reschedule',
  access: 'settings',
  summary: 'Reschedules a message.',
  notes:
    'With a time in the past, it is sent immediately, or within a minute if it is queued on another host. If it is ' +
    'already being sent, the error is that of /messages/cancel-scheduled.',
  params: { id: messageId, send_at: timestamp.describe('the new time, UTC, YYYY-MM-DD HH:MM:SS') },
  returns: scheduledRecord,
  errors: ['Unknown_Message'],
  example: { id: '5c1e0d0000000000000000000000000b', send_at: '2026-01-07 09:00:00' },
  async handle({ id, send_at: sendAt }, call) {
    const row = await findScheduled(id, call);
    if (row.state === 'cancelled') throw call.refuse('Unknown_Message', id);
    if ((await call.messages.move(row, sendAt)) === 'late') throw call.refuse('Unknown_Message', id, 'late');
    return toScheduledRecord({ ...row, sendAt });
  },
});

export const messagesScheduled = [list, cancel, reschedule];
