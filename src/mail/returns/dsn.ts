import { parseAddressList } from '../address-list.ts';
import { firstValue, type HeaderField } from '../headers.ts';
import { type Returned, readBlocks } from './returned.ts';

/** What a delivery status notification (RFC 3464) says of one recipient. */
export interface RecipientStatus {
  /** Addresses in lower case, as the report gives them: the one that was mailed, and the one it became on the way. */
  readonly recipients: readonly string[];
  readonly action: 'failed' | 'delayed' | 'delivered' | 'relayed' | 'expanded';
  /** RFC 3463, `5.1.1`. */
  readonly status: string;
  /** `smtp;550 5.1.1 …`; the status alone when there is no diagnostic code. */
  readonly diag: string;
}

const TYPES = new Set(['message/delivery-status', 'message/global-delivery-status']);
/** A report on one message of ours has one recipient, or those that it was forwarded to. */
const MOST_BLOCKS = 100;
const ACTIONS = {
  failed: 'failed',
  failure: 'failed',
  delayed: 'delayed',
  delivered: 'delivered',
  relayed: 'relayed',
  expanded: 'expanded',
} as const;

/** The recipients of a delivery status notification; undefined when the mail is none. */
export function parseDsn(mail: Returned): readonly RecipientStatus[] | undefined {
  const leaf = mail.leaves.find(({ type }) => TYPES.has(type));
  if (!leaf) return undefined;
  const found = readBlocks(leaf.bytes(), MOST_BLOCKS)
    .map(toStatus)
    .filter((status) => status !== undefined);
  return found.length === 0 ? undefined : found;
}

function toStatus(fields: readonly HeaderField[]): RecipientStatus | undefined {
  const recipients = ['original-recipient', 'final-recipient']
    .map((name) => addressOf(firstValue(fields, name)))
    .filter((address) => address !== '');
  const status = /\b([245]\.\d{1,3}\.\d{1,3})\b/.exec(firstValue(fields, 'status') ?? '')?.[1];
  const action = actionOf(firstValue(fields, 'action'), status);
  // The first block is about the message, and names none (RFC 3464 section 2.2); some software has no empty line before the next.
  if (recipients.length === 0 || action === undefined) return undefined;
  const diagnostic = diagnosticOf(firstValue(fields, 'diagnostic-code') ?? '');
  const known = status ?? (action === 'failed' ? '5.0.0' : action === 'delayed' ? '4.0.0' : '2.0.0');
  return { recipients, action, status: known, diag: diagnostic === '' ? known : diagnostic };
}

function actionOf(text: string | undefined, status: string | undefined): RecipientStatus['action'] | undefined {
  const word = /^[a-z]+/.exec((text ?? '').trim().toLowerCase())?.[0] ?? '';
  const known: Readonly<Record<string, RecipientStatus['action']>> = ACTIONS;
  if (Object.hasOwn(known, word)) return known[word];
  // Without the field that must be there, the status is all that is left to believe.
  if (status === undefined) return undefined;
  return status.startsWith('5') ? 'failed' : status.startsWith('4') ? 'delayed' : 'delivered';
}

/** `rfc822; jo@example.com`, in any spelling that is about. */
function addressOf(value: string | undefined): string {
  const text = (value ?? '').replace(/^[^;]*;/, '').trim();
  return (parseAddressList(text).mailboxes[0]?.address ?? text).toLowerCase();
}

/** The type in lower case and no space behind it: the form in which consumers know a diagnosis. */
function diagnosticOf(value: string): string {
  const text = value.trim();
  const typed = /^([\w-]+)\s*;\s*(.*)$/s.exec(text);
  const words = (typed?.[2] ?? text).trim();
  return words === '' ? '' : `${(typed?.[1] ?? 'smtp').toLowerCase()};${words}`;
}
