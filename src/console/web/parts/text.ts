import { signal } from '@preact/signals';

// Texts and times as people read them.

/** Control characters and those that change the direction of text would hide what is really there. */
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g;

/** A text of a stranger: what cannot be seen is written out. */
export function plain(text: string): string {
  return text.replace(
    HIDDEN,
    (one) => `\u2039U+${one.charCodeAt(0).toString(16).toUpperCase().padStart(4, '0')}\u203a`,
  );
}

/** The time now, every few seconds. */
export const now = signal(Date.now());

export function tickClock(): void {
  setInterval(() => {
    if (document.visibilityState === 'visible') now.value = Date.now();
  }, 5_000);
}

/** A time of the API: UTC, `YYYY-MM-DD HH:MM:SS`, with or without a fraction. */
export function toMs(time: string): number {
  return Date.parse(`${time.replace(' ', 'T')}${time.endsWith('Z') ? '' : 'Z'}`);
}

/** A time as the API wants it. */
export function toApiTime(ms: number): string {
  return new Date(ms).toISOString().slice(0, 19).replace('T', ' ');
}

const pad = (value: number, digits = 2) => String(value).padStart(digits, '0');

/** Time of the day here, with milliseconds if there are any. */
export function clockTime(ms: number): string {
  const date = new Date(ms);
  const fraction = ms % 1000 === 0 ? '' : `.${pad(ms % 1000, 3)}`;
  return `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}${fraction}`;
}

export function localTime(ms: number): string {
  const date = new Date(ms);
  return `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())} ${clockTime(ms)}`;
}

/** Both clocks, here and UTC, if they differ. */
export function exactTime(ms: number): string {
  if (new Date(ms).getTimezoneOffset() === 0) return `${localTime(ms)} UTC`;
  return `${localTime(ms)} local, ${new Date(ms)
    .toISOString()
    .replace('T', ' ')
    .replace(/(?:\.000)?Z$/, '')} UTC`;
}

/** A span of time in its two largest units. */
export function span(ms: number): string {
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  const s = Math.round(ms / 1000);
  if (s < 60) return `${s} s`;
  const min = Math.floor(s / 60);
  if (min < 60) return s % 60 === 0 || min >= 10 ? `${min} min` : `${min} min ${s % 60} s`;
  const h = Math.floor(min / 60);
  if (h < 24) return min % 60 === 0 ? `${h} h` : `${h} h ${min % 60} min`;
  const days = Math.floor(h / 24);
  return days < 4 && h % 24 > 0 ? `${days} d ${h % 24} h` : `${days} days`;
}

/** How long ago, or how soon. */
export function relative(ms: number, at: number): string {
  const away = at - ms;
  if (Math.abs(away) < 5_000) return 'now';
  return away > 0 ? `${short(away)} ago` : `in ${short(-away)}`;
}

/** How long it has been so, after "for". */
export function age(since: number, at: number): string {
  return at - since < 5_000 ? 'a moment' : short(at - since);
}

function short(ms: number): string {
  const s = Math.floor(ms / 1000);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 172_800) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86_400)} days`;
}

export function size(bytes: number): string {
  if (bytes < 1000) return `${bytes} B`;
  if (bytes < 1_000_000) return `${(bytes / 1000).toFixed(1)} KB`;
  if (bytes < 1_000_000_000) return `${(bytes / 1_000_000).toFixed(1)} MB`;
  return `${(bytes / 1_000_000_000).toFixed(1)} GB`;
}

export function number(value: number): string {
  return value.toLocaleString('en-US');
}

/** The reply of a mail server, of which a bounce report names the type first (RFC 3464): `smtp;550 …`. */
export function replyText(diagnostic: string): string {
  return plain(diagnostic).replace(/^smtp; */, '');
}

/** A text with its first letter as a capital. */
export function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** `1 message`, `2 messages`. */
export function count(value: number, one: string, several = `${one}s`): string {
  return `${number(value)} ${value === 1 ? one : several}`;
}

export function ordinal(value: number): string {
  const last = value % 100 >= 11 && value % 100 <= 13 ? 0 : value % 10;
  return `${value}${last === 1 ? 'st' : last === 2 ? 'nd' : last === 3 ? 'rd' : 'th'}`;
}

/** Whether mail for this URL of a route is fetched by a consumer, and not posted. */
export const isPulled = (url: string): boolean => url.startsWith('pull:');

/** A URL without its query, which may be a secret. */
export function shortUrl(url: string): string {
  return url.replace(/^https?:\/\//, '').replace(/[?#].*$/s, '?\u2026');
}
