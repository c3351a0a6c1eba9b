import { type Maybe, member } from '../value.ts';
import type { Path } from './program.ts';
import type { Variables } from './variables.ts';

/** Where a loop is. */
export interface Place {
  readonly index: number;
  readonly key: string | number;
  readonly first: boolean;
  readonly last: boolean;
}

/** What names mean at one point of a template, and what they mean around it. */
export interface Frame {
  readonly value: Maybe;
  readonly around: Frame | undefined;
  readonly place: Place | undefined;
  readonly named: ReadonlyMap<string, Maybe>;
}

const NOTHING: ReadonlyMap<string, Maybe> = new Map();

/** Where a template begins: names are those of the variables. */
export function toFrame({ all }: Variables): Frame {
  return { value: all, around: undefined, place: undefined, named: NOTHING };
}

/** Where names are those of a value; it and its place may have names themselves. */
export function enter(
  around: Frame,
  value: Maybe,
  place: Place | undefined,
  [name, placeName]: readonly string[],
): Frame {
  const named = new Map<string, Maybe>();
  if (name !== undefined) named.set(name, value);
  if (placeName !== undefined) named.set(placeName, place?.key);
  return { value, around, place, named: named.size > 0 ? named : NOTHING };
}

/** What a path leads to. */
export function find({ up, data, scoped, parts }: Path, frame: Frame, variables: Variables): Maybe {
  const [name = '', ...rest] = parts;
  if (data)
    return name === 'root'
      ? follow(variables.all, rest, variables)
      : rest.length > 0
        ? undefined
        : placeOf(frame, up, name);
  if (up === 0 && !scoped) {
    for (let at: Frame | undefined = frame; at; at = at.around)
      if (at.named.has(name)) return rest.reduce(member, at.named.get(name));
  }
  let at: Frame | undefined = frame;
  for (let left = up; left > 0 && at; left--) at = at.around;
  return follow(at?.value, parts, variables);
}

/** Names of variables count in any case, those inside of values as they are. */
function follow(from: Maybe, [name, ...rest]: readonly string[], variables: Variables): Maybe {
  if (name === undefined) return from;
  return rest.reduce(member, from === variables.all ? variables.find(name) : member(from, name));
}

function placeOf(frame: Frame, up: number, name: string): Maybe {
  let left = up;
  for (let at: Frame | undefined = frame; at; at = at.around) {
    if (at.place && left-- === 0)
      return name === 'index' || name === 'key' || name === 'first' || name === 'last' ? at.place[name] : undefined;
  }
  return undefined;
}
