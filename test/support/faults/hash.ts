import { createHash } from 'node:crypto';

/** SHA-256 of a message, the same for what was sent and for what is posted: a post has its lines ended by LF alone. */
export function messageHash(text: string): string {
  return createHash('sha256').update(text.replaceAll('\r\n', '\n')).digest('hex');
}
