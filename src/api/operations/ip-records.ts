import { z } from 'zod';
import { toTimestamp } from '../../base/clock.ts';
import { text } from '../../base/schema.ts';
import { toAsciiDomain } from '../../mail/address.ts';
import { isWarming } from '../../sending/carry/sources.ts';
import { createPoolFinder, type IpRow, type PlacementRow, type PoolRow, toIpId } from '../../store/rows/ips.ts';

// Parameters and records of dedicated addresses and their pools, and how rows become them.

/** An address in any spelling. What is none is an address that the account does not have. */
export const ipParam = text(64)
  .transform((value) => toIpId(value) ?? value)
  .meta({ description: 'the IP address, in any spelling' });

const MAX_POOL = 255;

/** A pool that should be there. */
export const knownPool = text(MAX_POOL)
  .transform((value) => value.trim())
  .meta({ description: 'name of the pool' });

/** A pool that may have to be made. */
export const newPool = knownPool
  .refine((name) => name !== '', 'Please enter a value')
  .refine((name) => !/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u.test(name), 'Please enter a name without control characters')
  .meta({ description: 'name of the pool; letters count as they are' });

/** A name for the reverse DNS. */
export const reverseDomain = text(1000)
  .transform((value, context) => {
    const name = toAsciiDomain(value.trim());
    if (name?.includes('.')) return name;
    context.addIssue({ code: 'custom', message: 'Not a valid domain name' });
    return z.NEVER;
  })
  .meta({ description: 'the domain name, as `out.example.com`' });

const time = (description: string) => z.string().meta({ description: `${description}, UTC, YYYY-MM-DD HH:MM:SS` });
const timeOrNull = (description: string) =>
  z
    .string()
    .nullable()
    .meta({ description: `${description}, UTC, YYYY-MM-DD HH:MM:SS; null when there is none` });
const say = (description: string) => z.string().meta({ description });

export const ipRecord = z
  .object({
    ip: say('the IP address'),
    created_at: time('when the account got it'),
    pool: say('name of the pool it is in'),
    domain: say('reverse DNS domain of the IP'),
    custom_dns: z
      .object({
        enabled: z.boolean().meta({ description: 'whether a custom domain is configured' }),
        valid: z.boolean().meta({ description: 'whether the reverse DNS names it and it points to the IP' }),
        error: z.string().nullable().meta({ description: 'why it is not valid, or that the change is pending' }),
      })
      .meta({ description: "a domain of the account's own in the reverse DNS" }),
    warmup: z
      .object({
        warming_up: z.boolean().meta({ description: 'whether the IP is warming up' }),
        start_at: timeOrNull('when the warmup began'),
        end_at: timeOrNull('when it ends, 30 days later'),
      })
      .meta({ description: 'the 30 days in which a growing share of mail goes over it' }),
  })
  .meta({ title: 'dedicated IP record' });

export const poolRecord = z
  .object({
    name: say('name of the pool'),
    created_at: time('when it was made'),
    ips: z.array(ipRecord).meta({ description: 'the dedicated IPs in it' }),
  })
  .meta({ title: 'IP pool record' });

/** Makes records of addresses, by the account's placement and the present time. */
export function createIpRecorder(placement: PlacementRow, now: Date): (row: IpRow) => z.output<typeof ipRecord> {
  const poolOf = createPoolFinder(placement);
  return (row) => ({
    ip: row.id,
    created_at: toTimestamp(row.createdAt),
    pool: poolOf(row.id),
    domain: row.domain,
    custom_dns: { enabled: row.customDomain !== null, valid: row.customState === 'valid', error: row.customError },
    warmup: toWarmup(row, now),
  });
}

/** An end that has passed is over, whether the task has cleared it or not. */
function toWarmup({ warmupStartAt, warmupEndAt }: IpRow, now: Date) {
  const warming = isWarming(warmupEndAt, now);
  const shown = (at: Date | null) => (warming && at ? toTimestamp(at) : null);
  return { warming_up: warming, start_at: shown(warmupStartAt), end_at: shown(warmupEndAt) };
}

/** Makes records of pools from all addresses of the account. */
export function createPoolRecorder(
  placement: PlacementRow,
  ips: readonly IpRow[],
  now: Date,
): (row: PoolRow) => z.output<typeof poolRecord> {
  const byPool = Map.groupBy(ips.map(createIpRecorder(placement, now)), ({ pool }) => pool);
  return ({ name, createdAt }) => ({ name, created_at: toTimestamp(createdAt), ips: byPool.get(name) ?? [] });
}

// For the examples.
/** An address of the account's. */
export const IP = {
  ip: '192.0.2.1',
  created_at: '2026-01-03 10:00:00',
  pool: 'Main Pool',
  domain: 'out1.mx.postern.test',
  custom_dns: { enabled: false, valid: false, error: null },
  warmup: { warming_up: false, start_at: null, end_at: null },
};
/** The times of a warmup that begins when the examples run. */
export const WARMUP = { warming_up: true, start_at: '2026-01-05 12:00:00', end_at: '2026-02-04 12:00:00' };
