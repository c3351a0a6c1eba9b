import { z } from 'zod';
import { limitOf, nextCursor, optionalCursor, toTime } from '../../api/operations/fields.ts';
import { EVENTS } from '../../base/log.ts';
import { optional, text } from '../../base/schema.ts';
import { noteAction } from '../../journal/actions.ts';
import { perHostOperation } from './per-host.ts';

// The tasks, the settings and the log of a host.

const tasks = perHostOperation({
  path: '/host/tasks',
  access: 'host',
  summary: 'Lists the tasks of this host with their last run in this process and their next one.',
  params: {},
  returns: z.object({
    tasks: z.array(
      z.object({
        name: z.string(),
        schedule: z.string(),
        per_host: z.boolean(),
        running: z.boolean(),
        last_at: z.string().nullable(),
        last_ms: z.int().nullable(),
        last_result: z.enum(['done', 'failed', 'skipped', 'elsewhere']).nullable(),
        last_text: z.string(),
        next_at: z.string().nullable(),
      }),
    ),
  }),
  handle: async (_, { host }) => ({
    tasks: host.tasks().map(({ name, schedule, perHost, running, last, nextAt }) => ({
      name,
      schedule,
      per_host: perHost,
      running,
      last_at: toTime(last?.at),
      last_ms: last?.ms ?? null,
      last_result: last?.result ?? null,
      last_text: last?.text ?? '',
      next_at: toTime(nextAt),
    })),
  }),
});

const settings = perHostOperation({
  path: '/host/settings',
  access: 'host',
  summary: 'Lists every setting in force with its origin. Secrets are shown as (set).',
  params: {},
  returns: z.object({
    settings: z.array(z.object({ path: z.string(), value: z.unknown(), origin: z.string() })),
  }),
  handle: async (_, { host }) => ({
    settings: host.settings().map(({ path, value, origin }) => ({ path, value, origin })),
  }),
});

const runTask = perHostOperation({
  path: '/host/run-task',
  access: 'host',
  summary: 'Runs a task now, unless another host is running it.',
  params: { task: text(100) },
  returns: z.object({ task: z.string() }),
  async handle({ task }, call) {
    const names = call.host.tasks().map(({ name }) => name);
    if (!names.includes(task)) throw call.invalid('task', `Please enter one of: ${names.join(', ')}`);
    noteAction(call, 'task started', 1, task);
    call.poke(task);
    return { task };
  },
});

const MAX_LINES = 500;
const level = z.enum(['warn', 'error']);
const event = z.enum(EVENTS);
/** Another host may have a version with other events. */
const shownEvent = z.string();

const log = perHostOperation({
  path: '/host/log',
  access: 'host',
  summary: 'Shows the last warnings and errors of the log, newest first, and how often each event was logged.',
  params: {
    level: optional(level),
    event: optional(event),
    limit: limitOf(MAX_LINES, 100),
    before: optionalCursor,
  },
  returns: z.object({
    lines: z.array(
      z.object({
        n: z.int(),
        at: z.string(),
        level,
        event: shownEvent,
        fields: z.record(z.string(), z.unknown()),
      }),
    ),
    next: nextCursor,
    events: z.array(z.object({ event: shownEvent, level, count: z.int(), last_at: z.string() })),
  }),
  async handle({ level, event, limit, before = Number.POSITIVE_INFINITY }, { host }) {
    const found = host.log
      .lines()
      .filter((line) => line.n < before && (event === undefined || line.event === event))
      .filter((line) => level !== 'error' || line.level === 'error');
    const shown = found.slice(0, limit);
    return {
      lines: shown.map(({ n, at, level, event, fields }) => ({
        n,
        at: toTime(at),
        level,
        event,
        fields: { ...fields },
      })),
      next: found.length > shown.length ? (shown.at(-1)?.n ?? null) : null,
      events: host.log
        .counts()
        .map(({ event, level, count, lastAt }) => ({ event, level, count, last_at: toTime(lastAt) })),
    };
  },
});

export const machineOperations = [tasks, runTask, settings, log];
