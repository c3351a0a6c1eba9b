import { FLAGS, type Lie, nameOf, type Parts, packet, type Query, record, SAME, type Said, TYPE, txt } from './liar.ts';

/** What a liar wants to be believed, and what an honest server would say. */
const FORGED = 'v=spf1 +all';
const TRUE = 'v=spf1 -all';

const forged = (owner: Buffer = SAME) => record(owner, TYPE.TXT, txt(FORGED));
const honest = (query: Query): Said => ({
  bytes: packet(query, { answers: query.type === TYPE.TXT ? [record(SAME, TYPE.TXT, txt(TRUE))] : [] }),
});
const forge =
  (parts: (query: Query) => Parts): Lie =>
  (query) =>
    query.type === TYPE.TXT ? [{ bytes: packet(query, { answers: [forged()], ...parts(query) }) }] : [honest(query)];
const bytes =
  (make: (query: Query) => Buffer): Lie =>
  (query) => [{ bytes: make(query) }];
const times = <T>(count: number, make: (n: number) => T): T[] => Array.from({ length: count }, (_, n) => make(n));
const other = (query: Query) => Buffer.concat([nameOf('other.test'), query.question.subarray(-4)]);
const ofType = (query: Query, type: number) =>
  Buffer.concat([query.question.subarray(0, -4), Buffer.from([0, type, 0, 1])]);
const cname = (target: Buffer, owner: Buffer = SAME) => record(owner, TYPE.CNAME, target);

/** Every lie, with the SPF result that must follow. FORGED, which would be `pass`, must never be believed. */
export const LIES: Readonly<Record<string, readonly [result: 'temperror' | 'permerror' | 'none' | 'fail', lie: Lie]>> =
  {
    drop: ['temperror', () => []],
    slow: ['temperror', (query) => [{ bytes: packet(query, { answers: [forged()] }), after: 10_000 }]],
    servfail: ['temperror', bytes((query) => packet(query, { flags: FLAGS.servfail }))],
    refused: ['temperror', bytes((query) => packet(query, { flags: FLAGS.refused }))],
    formerr: ['temperror', bytes((query) => packet(query, { flags: FLAGS.formerr }))],
    'servfail-with-an-answer': ['temperror', forge(() => ({ flags: FLAGS.servfail }))],
    'truncated-always': ['temperror', forge(() => ({ flags: FLAGS.truncated }))],
    'truncated-then-tcp': [
      'fail',
      (query) =>
        query.over === 'UDP'
          ? [{ bytes: packet(query, { flags: FLAGS.truncated, answers: [forged()] }) }]
          : [honest(query)],
    ],
    'truncated-then-drip': [
      'temperror',
      (query) =>
        query.over === 'UDP'
          ? [{ bytes: packet(query, { flags: FLAGS.truncated }) }]
          : [{ bytes: packet(query, { answers: [forged()] }), drip: true }],
    ],
    'truncated-then-silence': [
      'temperror',
      (query) => (query.over === 'UDP' ? [{ bytes: packet(query, { flags: FLAGS.truncated }) }] : []),
    ],
    'other-id': ['temperror', forge(({ id }) => ({ id: id ^ 1 }))],
    'other-ids-first': [
      'fail',
      (query) => [
        ...times(200, (n) => ({ bytes: packet(query, { answers: [forged()], id: (query.id + 1 + n) & 0xffff }) })),
        { ...honest(query), after: 20 },
      ],
    ],
    'other-port': ['temperror', (query) => [{ bytes: packet(query, { answers: [forged()] }), elsewhere: true }]],
    'other-question': [
      'temperror',
      forge((query) => ({ question: other(query), answers: [forged(nameOf(query.name))] })),
    ],
    'other-type-of-question': ['temperror', forge((query) => ({ question: ofType(query, TYPE.A) }))],
    'other-class-of-question': [
      'temperror',
      forge((query) => ({ question: Buffer.concat([query.question.subarray(0, -2), Buffer.from([0, 3])]) })),
    ],
    'no-question': ['temperror', forge(() => ({ question: Buffer.alloc(0), questions: 0 }))],
    'two-questions': [
      'temperror',
      forge((query) => ({ question: Buffer.concat([query.question, query.question]), questions: 2 })),
    ],
    'a-query-as-an-answer': ['temperror', forge(() => ({ flags: FLAGS.query }))],
    'another-opcode': ['temperror', forge(() => ({ flags: FLAGS.update }))],
    'other-owner': ['none', forge(() => ({ answers: [forged(nameOf('other.test'))] }))],
    'other-owner-below': ['none', forge((query) => ({ answers: [forged(nameOf(`www.${query.name}`))] }))],
    'other-class': ['none', forge(() => ({ answers: [record(SAME, TYPE.TXT, txt(FORGED), { kind: 3 })] }))],
    'wrong-type': [
      'none',
      forge(() => ({
        answers: [record(SAME, TYPE.A, Buffer.from([127, 0, 0, 1])), record(SAME, TYPE.PTR, nameOf('a.test'))],
      })),
    ],
    'text-as-an-address': ['temperror', forge(() => ({ answers: [record(SAME, TYPE.A, txt(FORGED))] }))],
    'in-the-authority': ['none', forge(() => ({ answers: [], authorities: [forged()] }))],
    'in-the-additional': [
      'fail',
      forge(() => ({
        answers: [record(SAME, TYPE.TXT, txt(TRUE))],
        authorities: [forged()],
        additionals: [forged(), forged(nameOf('other.test'))],
      })),
    ],
    'spoofed-neighbours': [
      'fail',
      forge(() => ({
        answers: [
          record(SAME, TYPE.TXT, txt(TRUE)),
          forged(nameOf('victim.test')),
          record(nameOf('hook.test'), TYPE.A, Buffer.from([127, 0, 0, 1])),
        ],
      })),
    ],
    'cname-to-itself': ['temperror', forge(() => ({ answers: [cname(SAME)] }))],
    'cname-circle': [
      'temperror',
      forge((query) => ({
        answers: [
          cname(nameOf('a.test')),
          cname(nameOf('b.test'), nameOf('a.test')),
          cname(nameOf(query.name), nameOf('b.test')),
        ],
      })),
    ],
    'cname-circle-over-questions': [
      'temperror',
      (query) => [
        {
          bytes: packet(query, {
            answers: [cname(nameOf(query.name.startsWith('x.') ? query.name.slice(2) : `x.${query.name}`))],
          }),
        },
      ],
    ],
    'cname-without-end': [
      'temperror',
      (query) => [
        { bytes: packet(query, { answers: [cname(nameOf(`n${query.name.length}.${query.name.slice(-200)}`))] }) },
      ],
    ],
    'cname-and-more': [
      'none',
      forge(() => ({
        answers: [cname(nameOf('other.test')), record(nameOf('other.test'), TYPE.A, Buffer.from([127, 0, 0, 1]))],
        authorities: [soa()],
      })),
    ],
    'pointer-to-itself': [
      'temperror',
      forge((query) => ({ answers: [forged(Buffer.from([0xc0, 12 + query.question.length]))] })),
    ],
    'pointers-in-a-circle': [
      'temperror',
      forge((query) => ({
        answers: [forged(Buffer.from([0xc0, 14 + query.question.length, 0xc0, 12 + query.question.length]))],
      })),
    ],
    'pointer-beyond-the-end': ['temperror', forge(() => ({ answers: [forged(Buffer.from([0xff, 0xff]))] }))],
    'pointer-into-the-header': ['none', forge(() => ({ answers: [forged(Buffer.from([0xc0, 4]))] }))],
    'pointers-by-the-thousand': [
      'temperror',
      forge((query) => ({
        answers: times(1000, (n) =>
          cname(Buffer.from([0xc0, n % 200]), Buffer.from([0xc0, 12 + query.question.length])),
        ),
      })),
    ],
    'reserved-label': ['temperror', forge(() => ({ answers: [forged(Buffer.from([0x80, 1, 0]))] }))],
    'label-that-never-ends': ['temperror', forge(() => ({ answers: [Buffer.from([63, 0x61])], counts: [1, 0, 0] }))],
    'name-of-a-thousand-octets': [
      'temperror',
      forge(() => ({ answers: [forged(nameOf(times(16, () => 'a'.repeat(60)).join('.')))] })),
    ],
    'length-beyond-the-end': [
      'temperror',
      forge(() => ({ answers: [record(SAME, TYPE.TXT, txt(FORGED), { length: 6000 })] })),
    ],
    'string-beyond-the-record': [
      'temperror',
      forge(() => ({ answers: [record(SAME, TYPE.TXT, Buffer.from([250, 0x76, 0x3d]))] })),
    ],
    'address-of-three-octets': [
      'temperror',
      bytes((query) => packet(query, { answers: [record(SAME, TYPE.A, Buffer.from([127, 0, 1]), { length: 4 })] })),
    ],
    'counts-that-lie': ['temperror', forge(() => ({ counts: [60_000, 60_000, 60_000] }))],
    'more-counted-than-there': ['temperror', forge(() => ({ counts: [2, 0, 0] }))],
    'thousand-records': ['temperror', forge(() => ({ answers: times(1000, () => forged()) }))],
    'huge-over-udp': [
      'temperror',
      forge(() => ({ answers: times(240, () => record(SAME, TYPE.TXT, txt('x'.repeat(250)))) })),
    ],
    'huge-over-tcp': [
      'temperror',
      (query) => [
        {
          bytes:
            query.over === 'UDP'
              ? packet(query, { flags: FLAGS.truncated })
              : packet(query, {
                  answers: [forged(), ...times(240, () => record(SAME, TYPE.TXT, txt('x'.repeat(250))))],
                }),
        },
      ],
    ],
    'strings-without-end': [
      'permerror',
      forge(() => ({
        answers: [record(SAME, TYPE.TXT, txt('v=spf1 ', ...times(10, () => ' include:a.test'.repeat(16)), ' +all'))],
      })),
    ],
    'two-records': ['permerror', forge(() => ({ answers: [forged(), record(SAME, TYPE.TXT, txt(TRUE))] }))],
    'includes-itself': [
      'permerror',
      forge((query) => ({ answers: [record(SAME, TYPE.TXT, txt(`v=spf1 include:${query.name} +all`))] })),
    ],
    'empty-packet': ['temperror', bytes(() => Buffer.alloc(0))],
    'half-a-header': ['temperror', bytes((query) => packet(query).subarray(0, 6))],
    'header-alone': ['temperror', bytes((query) => packet(query, { answers: [forged()] }).subarray(0, 12))],
    'cut-in-the-question': ['temperror', bytes((query) => packet(query, { answers: [forged()] }).subarray(0, 14))],
    noise: ['temperror', bytes((query) => Buffer.concat([packet(query).subarray(0, 2), Buffer.alloc(400, 0xff)]))],
    zeros: ['temperror', bytes((query) => Buffer.concat([packet(query).subarray(0, 2), Buffer.alloc(400)]))],
    'text-that-is-none': ['none', forge(() => ({ answers: [record(SAME, TYPE.TXT, Buffer.alloc(0))] }))],
    'ttl-of-136-years': ['fail', forge(() => ({ answers: [record(SAME, TYPE.TXT, txt(TRUE), { ttl: 0xffffffff })] }))],
  };

function soa(): Buffer {
  return record(SAME, TYPE.SOA, Buffer.concat([nameOf('ns.test'), nameOf('root.test'), Buffer.alloc(20, 1)]));
}

/**
 * Tells a lie for names below `<lie>.lie.test`, by that label, and the truth for all others: there `forged.test` says
 * FORGED.
 */
export const lie: Lie = (query) => {
  const [, name = ''] = /(?:^|\.)([\w-]+)\.lie\.test$/.exec(query.name) ?? [];
  const known = LIES[name]?.[1];
  if (known) return known(query);
  const record_ = query.name === 'forged.test' ? FORGED : TRUE;
  return [{ bytes: packet(query, { answers: query.type === TYPE.TXT ? [record(SAME, TYPE.TXT, txt(record_))] : [] }) }];
};
