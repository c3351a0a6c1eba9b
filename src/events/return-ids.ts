import { hash } from 'node:crypto';
import type { MessageEventKind } from '../store/message-events.ts';

/** The id of an event that somebody outside brought about: the same message, kind and occasion are the same event. */
export function returnEventId(
  message: string,
  kind: MessageEventKind,
  ...occasion: readonly (string | number)[]
): string {
  return `${message.slice(0, 8)}-${hash('sha256', ['returned', message, kind, ...occasion].join('\0'), 'base64url').slice(0, 24)}`;
}
