import { namesOf } from '../base/tables.ts';
import { CONDITIONS } from '../inbound/conditions.ts';
import { ACTION_NAMES } from '../inbound/decision.ts';
import { ATTACHMENT_MODES, FORMAT_NAMES } from '../inbound/formats.ts';
import { ORDER_NAMES } from '../inbound/order.ts';
import { SCHEDULED_CHANGES } from '../store/rows/messages.ts';
import { featuresOf } from '../store/store.ts';

/** The features of rows that this version understands: those of its declared fields, and of values in its tables. */
export const FEATURES: readonly string[] = featuresOf({
  action: ACTION_NAMES,
  also: FORMAT_NAMES,
  attachments: ATTACHMENT_MODES,
  copies: ['events', 'inbound', 'outbound'],
  format: FORMAT_NAMES,
  order: ORDER_NAMES,
  scheduled: SCHEDULED_CHANGES,
  when: namesOf(CONDITIONS),
});
