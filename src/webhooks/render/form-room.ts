import { frozen } from '../../base/frozen.ts';

/** The fraction of the room that one account may use. */
const SHARE = 1 / 2;

interface Waiting {
  readonly account: string;
  readonly bytes: number;
  readonly enter: (give: () => void) => void;
}

/**
 * Room on the disk for forms of large messages while they are posted. A message is on the disk once, but each of its
 * deliveries has a form of its own: without a bound, one large message to many recipients whose endpoint is slow takes
 * the disk that mail needs.
 */
export function createFormRoom(most: number) {
  const held = new Map<string, number>();
  let all = 0;
  let waiting: readonly Waiting[] = [];

  const fits = ({ account, bytes }: Waiting): boolean => {
    const own = held.get(account) ?? 0;
    return (all === 0 || all + bytes <= most) && (own === 0 || own + bytes <= most * SHARE);
  };
  const shift = (account: string, bytes: number): void => {
    const own = (held.get(account) ?? 0) + bytes;
    if (own > 0) held.set(account, own);
    else held.delete(account);
    all += bytes;
  };
  function enter(one: Waiting): void {
    const { account, bytes } = one;
    shift(account, bytes);
    let given = false;
    one.enter(() => {
      if (given) return;
      given = true;
      shift(account, -bytes);
      // In order. One that does not fit lets smaller ones pass, and is let in alone when the room is empty.
      for (const next of waiting) {
        if (!fits(next)) continue;
        waiting = waiting.filter((other) => other !== next);
        enter(next);
      }
    });
  }

  return frozen({
    /** Resolves when there is room, with a function that releases it. One form is always let in. */
    take: (account: string, bytes: number) =>
      new Promise<() => void>((resolve) => {
        const one = { account, bytes, enter: resolve };
        if (fits(one)) enter(one);
        else waiting = [...waiting, one];
      }),
  });
}
