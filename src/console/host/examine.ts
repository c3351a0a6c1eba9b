import { X509Certificate } from 'node:crypto';
import { z } from 'zod';
import { toTime } from '../../api/operations/fields.ts';
import { DAY_MS } from '../../base/clock.ts';
import { optional, text } from '../../base/schema.ts';
import { tableOf } from '../../base/tables.ts';
import { perHostOperation } from './per-host.ts';

// The checks of `postern doctor`, and the listeners with their certificates.

const level = z.enum(['ok', 'warning', 'fault', 'skipped']);

/** Characters of a finding: DNS records in it may be long. */
const MAX_TEXT = 1000;

const examine = perHostOperation({
  path: '/host/examine',
  access: 'host',
  summary:
    'Examines the host as postern doctor does: starts, or joins the examination that runs, or shows one by its id.',
  params: { id: optional(text(100)) },
  returns: z.object({
    id: z.string(),
    state: z.enum(['running', 'done']),
    started_at: z.string(),
    ended_at: z.string().nullable(),
    counts: z.record(level, z.int()),
    checks: z.array(z.object({ name: z.string(), level, text: z.string(), advice: z.string().nullable() })),
  }),
  async handle({ id }, { examinations, unknownJob }) {
    const run = id === undefined ? examinations.start() : examinations.find(id);
    if (!run) throw unknownJob(id ?? '');
    return {
      id: run.id,
      state: run.endedAt === undefined ? ('running' as const) : ('done' as const),
      started_at: toTime(run.startedAt),
      ended_at: toTime(run.endedAt),
      counts: tableOf(level.options, (verdict) => run.found.filter((one) => one.verdict === verdict).length),
      checks: run.found.map(({ check, verdict, seen, advice }) => ({
        name: check,
        level: verdict,
        text: seen.slice(0, MAX_TEXT),
        advice: advice ?? null,
      })),
    };
  },
});

const listeners = perHostOperation({
  path: '/host/listeners',
  access: 'host',
  summary: 'Lists where the host listens, with open sessions and the certificate in use.',
  params: {},
  returns: z.object({
    listeners: z.array(
      z.object({
        name: z.enum(['smtp', 'submission', 'submissions', 'http', 'https']),
        tls: z.enum(['none', 'starttls', 'implicit']),
        addresses: z.array(z.object({ address: z.string(), port: z.int() })),
        sessions: z.int(),
        certificate: z
          .object({
            names: z.array(z.string()),
            issuer: z.string(),
            not_after: z.string(),
            days_left: z.int(),
          })
          .nullable(),
      }),
    ),
  }),
  handle: async (_, { host, now }) => ({
    listeners: await Promise.all(
      host.listeners().map(async ({ name, tls, addresses, certificate, sessions }) => ({
        name,
        tls,
        addresses: addresses.map(({ address, port }) => ({ address, port })),
        sessions: await sessions(),
        certificate: certificate === undefined ? null : toCertificate(certificate, now()),
      })),
    ),
  }),
});

function toCertificate(pem: string, now: number) {
  const { subjectAltName, subject, issuer, validToDate } = new X509Certificate(pem);
  return {
    names: (subjectAltName ?? subject).split(/, |\n/).map((name) => name.replace(/^(?:DNS:|IP Address:|CN=)/, '')),
    issuer: issuer.replaceAll('\n', ', '),
    not_after: toTime(validToDate.getTime()),
    days_left: Math.floor((validToDate.getTime() - now) / DAY_MS),
  };
}

export const examineOperations = [examine, listeners];
