import { useEffect, useRef, useState } from 'preact/hooks';
import { awaySince, call, Failed } from './call.ts';
import type { Answer, Operation, Params } from './operations.ts';
import { account, may, messageOf } from './session.ts';

// The data of a screen, from the server. Earlier data stays while it is read again, and when that fails.

export interface Loaded<T> {
  readonly data: T | undefined;
  readonly error: Failed | undefined;
  /** Since when it does not work. */
  readonly failedAt: number | undefined;
  readonly loading: boolean;
  again(): void;
  /** Changes what is shown, without asking. */
  change(how: (data: T) => T): void;
}

/** The last data under each key, so that going back shows it at once. */
const kept = new Map<string, unknown>();
const MAX_KEPT = 30;

function keep(key: string, data: unknown): void {
  kept.delete(key);
  kept.set(key, data);
  for (const oldest of kept.keys()) {
    if (kept.size <= MAX_KEPT) break;
    kept.delete(oldest);
  }
}

/** Forgets everything, when another person or account is shown. */
export function forgetShown(): void {
  kept.clear();
}

type State<T> = Omit<Loaded<T>, 'again' | 'change'> & { readonly key: string };

/** Reads what belongs to the key, and reads it again when the key changes. An undefined key reads nothing. */
export function useLoad<T>(key: string | undefined, load: (stop: AbortSignal) => Promise<T>): Loaded<T> {
  const [round, setRound] = useState(0);
  const first = (): State<T> => ({
    key: key ?? '',
    data: key === undefined ? undefined : (kept.get(key) as T | undefined),
    error: undefined,
    failedAt: undefined,
    loading: key !== undefined,
  });
  const [state, setState] = useState(first);
  const shown = state.key === (key ?? '') ? state : first();
  const newest = useRef(load);
  newest.current = load;

  useEffect(() => {
    if (key === undefined) return;
    const stop = new AbortController();
    setState((before) => (before.key === key ? { ...before, loading: true } : first()));
    newest.current(stop.signal).then(
      (data) => {
        if (stop.signal.aborted) return;
        keep(key, data);
        setState({ key, data, error: undefined, failedAt: undefined, loading: false });
      },
      (error: unknown) => {
        if (stop.signal.aborted) return;
        const failed = error instanceof Failed ? error : new Failed('Fault', messageOf(error), 0);
        setState((before) => ({
          ...(before.key === key ? before : first()),
          error: failed,
          failedAt: before.failedAt ?? Date.now(),
          loading: false,
        }));
      },
    );
    return () => stop.abort();
  }, [key, round]);

  // What failed with the store is read again once it is back.
  const isAway = awaySince.value !== undefined;
  useEffect(() => {
    if (!isAway && state.error?.kind === 'ServiceUnavailable') setRound((before) => before + 1);
  }, [isAway]);

  return {
    ...shown,
    again: () => setRound((before) => before + 1),
    change: (how) =>
      setState((before) => {
        if (before.data === undefined) return before;
        const data = how(before.data);
        keep(before.key, data);
        return { ...before, data };
      }),
  };
}

/**
 * The record of an operation, for the selected account; no call without params, or if the role does not allow it.
 * It is read again when the params change, or `version`.
 */
export function useCall<N extends Operation>(
  operation: N,
  params: Params<N> | undefined,
  version: string | number = '',
): Loaded<Answer<N>> {
  const of = operation.startsWith('host/') ? '' : account.value?.id;
  const key = params && may(operation) ? `${operation} ${of} ${JSON.stringify(params)} ${version}` : undefined;
  return useLoad(key, (stop) => call(operation, params ?? ({} as Params<N>), stop));
}

type Cursor = number | string | undefined;

/** A list that is read in pages, with its rows in the field `rows`: the first by its key, each other one by `more`. */
export function usePages<K extends string, P extends Readonly<Record<K, readonly unknown[]>> & { next: Cursor | null }>(
  key: string,
  rows: K,
  read: (cursor: Cursor, stop?: AbortSignal) => Promise<P>,
) {
  const loaded = useLoad(key, (stop) => read(undefined, stop));
  const next = loaded.data?.next ?? undefined;
  const more = async () => {
    const page = await read(next);
    loaded.change((shown) => ({ ...page, [rows]: [...shown[rows], ...page[rows]] }));
  };
  return { ...loaded, more: next === undefined ? undefined : more };
}

/** The cursor of a list of this host alone. */
export const ofOneHost = (cursor: Cursor): number | undefined => (typeof cursor === 'number' ? cursor : undefined);

const EVERY_MS = 5_000;

/** The same, read again now and then while the screen is open and seen. */
export function useRepeat<T>(loaded: Loaded<T>, everyMs: number = EVERY_MS): Loaded<T> {
  const newest = useRef(loaded);
  newest.current = loaded;
  useEffect(() => {
    const timer = setInterval(() => {
      if (document.visibilityState === 'visible' && !newest.current.loading) newest.current.again();
    }, everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
  return loaded;
}
