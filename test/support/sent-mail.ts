import { readFileSync } from 'node:fs';
import type { Sunk } from './mail-sink.ts';

/** Without soft line breaks and escapes. */
const readable = (raw: string) =>
  raw
    .replaceAll(/=\r\n/g, '')
    .replaceAll('=3D', '=')
    .replaceAll(/\r\n[ \t]+/g, ' ')
    .replaceAll('&amp;', '&');

/** What a mail that arrived carries to come back by; each '' when it does not. */
interface WaysBack {
  readonly click: string;
  readonly open: string;
  /** The URL of List-Unsubscribe, and its address. */
  readonly unsubscribe: string;
  readonly mailto: string;
}

export function waysBack(raw: string): WaysBack {
  const text = readable(raw);
  return {
    click: /https?:\/\/[^"\s]+\/track\/click\/[^"\s<>]+/.exec(text)?.[0] ?? '',
    open: /https?:\/\/[^"\s]+\/track\/open\/[^"\s<>]+/.exec(text)?.[0] ?? '',
    unsubscribe: /<(https?:\/\/[^>\s]+\/unsubscribe\/[^>\s]+)>/.exec(text)?.[1] ?? '',
    mailto: /<mailto:([^>?\s]+)/.exec(text)?.[1] ?? '',
  };
}

/** A link of a mail as a visitor of the server at `base` follows it: the public name stands for nobody in a test. */
export function localLink(base: string, url: string): string {
  const { pathname, search } = new URL(url);
  return `${base}${pathname}${search}`;
}

/** One of the fixtures, about a mail that arrived at its only recipient. */
export function returnOf(name: string, { from, to: [email = ''], raw }: Sunk): string {
  const [bounce = ''] = from.split('@');
  const unsub = waysBack(raw).unsubscribe.split('/').at(-1) ?? '';
  return readFileSync(`test/fixtures/returns/${name}.eml`, 'utf8')
    .replaceAll('{{bounce}}@bounces.postern.test', from)
    .replaceAll('{{bounce}}', bounce)
    .replaceAll('{{unsub}}', unsub)
    .replaceAll('jo@example.net', email)
    .replaceAll('\n', '\r\n');
}
