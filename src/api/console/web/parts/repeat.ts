import { useEffect, useRef } from 'preact/hooks';
import type { Loaded } from '../load.ts';

const EVERY_MS = 5_000;

/** Reads again now and then while the screen is open and seen. */
export function useRepeat(loaded: Loaded<unknown>, everyMs: number = EVERY_MS): void {
  const newest = useRef(loaded);
  newest.current = loaded;
  useEffect(() => {
    const timer = setInterval(() => {
      if (document.visibilityState === 'visible' && !newest.current.loading) newest.current.again();
    }, everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
}
