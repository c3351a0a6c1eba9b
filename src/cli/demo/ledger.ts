import { z } from 'zod';
import { frozen } from '../../base/frozen.ts';

/** The kinds of mail that are counted, with their names. */
export const ROADS = { received: 'mail received by SMTP', sent: 'mail sent by the API', events: 'webhook events' };
type Road = keyof typeof ROADS;

interface Item {
  readonly road: Road;
  readonly host: string;
  /** The number of arrivals. */
  arrivals: number;
  /** It was on the queue of the lost host. */
  waited: boolean;
}

const POSTED = z.array(z.object({ event: z.string(), msg: z.object({ subject: z.string().optional() }) }));

/** Tracks the mail given to the hosts of a demo, and its arrivals. Subjects identify messages. */
export function createLedger(onOther: (what: string) => void) {
  const items = new Map<string, Item>();
  const idOf = (road: Road, subject: string) => `${road} ${subject}`;
  const arrived = (road: Road, subject: string) => (items.get(idOf(road, subject))?.arrivals ?? 0) > 0;

  /** Whether it must arrive: events only for mail that was sent. */
  const isDue = ([id, { road }]: [string, Item]) => road !== 'events' || arrived('sent', id.slice('events '.length));
  const due = () => [...items].filter(isDue).map(([, item]) => item);
  const isMissing = ({ arrivals }: Item) => arrivals === 0;

  function open(road: Road, host: string, subject: string): void {
    items.set(idOf(road, subject), { road, host, arrivals: 0, waited: false });
  }

  function arrive(road: Road, subject: string): void {
    const item = items.get(idOf(road, subject));
    if (item) item.arrivals++;
    else onOther(`${ROADS[road]}: ${subject}`);
  }

  return frozen({
    /** Records mail received by a host. */
    comesIn: (host: string, subject: string) => open('received', host, subject),
    /** Records mail that a host must send and report by an event. */
    goesOut(host: string, subject: string): void {
      open('sent', host, subject);
      open('events', host, subject);
    },
    /** Records an accepted POST. */
    posted(body: Buffer): void {
      const events = new URLSearchParams(body.toString()).get('mandrill_events') ?? '[]';
      for (const { event, msg } of POSTED.parse(JSON.parse(events)))
        arrive(event === 'inbound' ? 'received' : 'events', msg.subject ?? '');
    },
    /** Records a message accepted by the mail server. */
    mailed: (raw: string) => arrive('sent', /^Subject: (.*?)\r?$/m.exec(raw)?.[1] ?? ''),
    countOf: (road: Road) => [...items.values()].filter((item) => item.road === road && item.arrivals > 0).length,
    /** Records the loss of a host. Returns the number of each kind on its queue. */
    lose(host: string): Readonly<Record<Road, number>> {
      const count = { received: 0, sent: 0, events: 0 };
      for (const item of due().filter((one) => one.host === host && isMissing(one))) {
        item.waited = true;
        count[item.road]++;
      }
      return count;
    },
    /** The number that has not arrived: in all, or of hosts other than the lost one. */
    missing: (ofOthers = false) => due().filter((item) => isMissing(item) && !(ofOthers && item.waited)).length,
    /** One row for each road. */
    rows() {
      return Object.entries(ROADS).map(([road, name]) => {
        const of = due().filter((item) => item.road === road);
        const delivered = of.filter(({ arrivals }) => arrivals > 0);
        return {
          name,
          total: of.length,
          delivered: delivered.length,
          adopted: delivered.filter(({ waited }) => waited).length,
          lost: of.length - delivered.length,
          twice: of.filter(({ arrivals }) => arrivals > 1).length,
        };
      });
    },
  });
}

export type Ledger = ReturnType<typeof createLedger>;
