import type { Log } from '../base/log.ts';
import type { EventNews } from './event-types.ts';
import type { Delivery } from './types.ts';

/** Who hears of deliveries, and who of events. */
export interface Listeners {
  onChange(listener: (fresh: readonly Delivery[]) => void): void;
  onNews(listener: (news: EventNews) => void): void;
  /** Fresh deliveries; none: the queue was changed by hand. */
  tell(fresh: readonly Delivery[]): void;
  say(news: EventNews): void;
}

/** A listener that fails takes nothing back of what was accepted. */
export function createListeners(log: Log): Listeners {
  const ofDeliveries: ((fresh: readonly Delivery[]) => void)[] = [];
  const ofEvents: ((news: EventNews) => void)[] = [];

  function inform<T>(listeners: readonly ((what: T) => void)[], what: T): void {
    for (const listener of listeners) {
      try {
        listener(what);
      } catch (error) {
        log.error('spool.fault', { reason: 'a listener failed', error });
      }
    }
  }

  return Object.freeze({
    onChange(listener: (fresh: readonly Delivery[]) => void) {
      ofDeliveries.push(listener);
    },
    onNews(listener: (news: EventNews) => void) {
      ofEvents.push(listener);
    },
    tell(fresh: readonly Delivery[]) {
      inform(ofDeliveries, fresh);
      if (fresh.length === 0) inform(ofEvents, { kind: 'changed' });
    },
    say(news: EventNews) {
      inform(ofEvents, news);
    },
  });
}
