import { z } from 'zod';
import { toTimeOrNull } from './fields.ts';
import { hostOperation } from './operation.ts';

// The machine itself: its tasks and its settings.

const tasks = hostOperation({
  path: '/host/tasks',
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
      last_at: toTimeOrNull(last?.at),
      last_ms: last?.ms ?? null,
      last_result: last?.result ?? null,
      last_text: last?.text ?? '',
      next_at: toTimeOrNull(nextAt),
    })),
  }),
});

const settings = hostOperation({
  path: '/host/settings',
  summary: 'Lists every setting in force with its origin. Secrets are shown as (set).',
  params: {},
  returns: z.object({
    settings: z.array(z.object({ path: z.string(), value: z.unknown(), origin: z.string() })),
  }),
  handle: async (_, { host }) => ({
    settings: host.settings().map(({ path, value, origin }) => ({ path, value, origin })),
  }),
});

export const machineOperations = [tasks, settings];
