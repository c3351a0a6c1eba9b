/** What may be asked of a webhook, as its `events` name it. */
export const HOOK_EVENTS = [
  'send',
  'delivered',
  'deferral',
  'hard_bounce',
  'soft_bounce',
  'open',
  'click',
  'spam',
  'unsub',
  'reject',
  'blacklist',
  'whitelist',
] as const;
export type HookEvent = (typeof HOOK_EVENTS)[number];

/** What came later to the public ancestor, and is sent to nobody who does not name it. */
const BY_NAME_ONLY: ReadonlySet<HookEvent> = new Set(['delivered', 'deferral']);

/** What a webhook gets that names no events. */
export const DEFAULT_EVENTS: readonly HookEvent[] = HOOK_EVENTS.filter((event) => !BY_NAME_ONLY.has(event));

/**
 * An event that a row carries until the spool has it: the change and its event are one write and cannot come apart.
 * `body` is the JSON text of the event as a webhook gets it.
 */
export interface UnsentEvent {
  /** Stays the same whenever it is sent again. */
  readonly id: string;
  readonly event: HookEvent;
  readonly at: Date;
  readonly body: string;
}

/** The fields of a row that carries events. A sweep finds by `unsentSince` what a crash left behind. */
export interface Carrier {
  readonly unsent:
    | readonly { readonly id: string; readonly event: HookEvent; readonly at: number; readonly body: string }[]
    | null;
  readonly unsentSince: Date | null;
}
