import type { Answer, Budget, MxRecord, Resolver } from '../dns/types.ts';

/** A question in the manner of node:dns: an array, or a rejection with a code. */
export type LookUp = (name: string, type: string) => Promise<unknown[]>;

/** The code of a question that the budget did not allow. */
export const BUDGET_CODE = 'EBUDGET';
const CODES = {
  timeout: 'ETIMEOUT',
  refused: 'EREFUSED',
  budget: BUDGET_CODE,
  servfail: 'ESERVFAIL',
  malformed: 'EBADRESP',
  unreachable: 'ECONNREFUSED',
} as const;

/** Whether a code says that a question was not answered, and may be another time. */
export function isFailureCode(code: string): boolean {
  return Object.values<string>(CODES).includes(code);
}

/** Our resolver in the manner of node:dns, which is what mailauth expects. `note` hears of every answer. */
export function createLookUp(
  resolver: Resolver,
  budget: Budget,
  note: (answer: Answer<unknown>) => void = () => {},
): LookUp {
  const noted = <T>(answer: Answer<T>): readonly T[] => {
    note(answer);
    return recordsOf(answer);
  };
  return async (name, type) => {
    switch (type) {
      case 'TXT':
        return noted(await resolver.resolve(name, 'TXT', budget)).map((text) => [text]);
      case 'MX':
        return [...noted<MxRecord>(await resolver.resolve(name, 'MX', budget))];
      case 'A':
      case 'AAAA':
      case 'PTR':
      case 'CNAME':
        return [...noted(await resolver.resolve(name, type, budget))];
      default:
        throw codedError('ENODATA');
    }
  };
}

function recordsOf<T>(answer: Answer<T>): readonly T[] {
  if (answer.kind === 'records') return answer.records;
  throw codedError(
    answer.kind === 'failure' ? CODES[answer.reason] : answer.kind === 'nxdomain' ? 'ENOTFOUND' : 'ENODATA',
  );
}

/** An absent record is no fault of the program: its stack would tell nothing, and is half of what it costs (12 us per message). */
function codedError(code: string): Error {
  const limit = Error.stackTraceLimit;
  Error.stackTraceLimit = 0;
  const error = Object.assign(new Error(code), { code });
  Error.stackTraceLimit = limit;
  return error;
}
