import { expect } from 'chai';
import { runToEnd } from '../../../src/base/concurrency.ts';
import { createMergeEngine, findingFault } from '../../../src/mail/merge/language.ts';
import { type MergeValue, readMergeValue } from '../../../src/mail/merge/values.ts';
import { growth, repeated } from '../../support/growth.ts';
import { randomFrom, randomText } from '../../support/random-text.ts';

const now = new Date('2026-01-05T14:07:09Z');
const MANY = Array.from({ length: 1000 }, () => 1);
const VARS: readonly { name: string; content: MergeValue }[] = [
  { name: 'n', content: 5 },
  { name: 'big', content: 'x'.repeat(1_000_000) },
  { name: 'many', content: MANY },
  { name: 'grid', content: MANY.map(() => MANY) },
  { name: 'texts', content: MANY.map(() => 'y'.repeat(10_000)) },
];
const filling = (text: string, maxLength?: number) =>
  createMergeEngine('handlebars', VARS, { now }).filling(text, 'html', maxLength);
/** The name of what was thrown, and what it says. */
function failure(text: string, maxLength?: number): [name: string, message: string] {
  try {
    runToEnd(filling(text, maxLength));
  } catch (error) {
    if (error instanceof Error) return [error.name, error.message];
  }
  throw new Error('it was taken');
}
const STEPS = 'it takes more than 1000000 steps';

describe('a hostile handlebars template', () => {
  it('cannot repeat endlessly', () => {
    const million = '{{#each grid}}{{#each this}}{{/each}}{{/each}}';
    for (const text of [
      million,
      '{{#each many}}{{#each ../many}}{{#each ../../many}}x{{/each}}{{/each}}{{/each}}',
      '{{#each grid}}{{#each @root.grid}}{{#if n}}{{/if}}{{/each}}{{/each}}',
    ]) {
      expect(failure(text), text).to.deep.equal(['TemplateError', STEPS]);
    }
  });

  it('cannot process long values endlessly', () => {
    for (const part of [
      '{{#if (upper @root.big)}}{{/if}}',
      '{{#if (striptags ../big)}}{{/if}}',
      '{{#if `@root.big == @root.big`}}{{/if}}',
      '{{#if `../texts == 1`}}{{/if}}',
      '{{lookup ../big "x"}}',
      '{{#if ../big}}{{/if}}',
    ]) {
      expect(failure(`{{#each many}}${part}{{/each}}`), part).to.deep.equal(['TemplateError', STEPS]);
    }
  });

  it('cannot grow endlessly', () => {
    expect(failure('{{big}}'.repeat(30))).to.deep.equal(['RenderedTooLong', '']);
    expect(failure('{{#each many}}{{../texts}}{{/each}}')[0]).to.equal('RenderedTooLong');
    expect(failure('{{n}}{{n}}', 1)[0]).to.equal('RenderedTooLong');
    expect(runToEnd(filling('{{n}}{{n}}', 2))).to.equal('55');
  });

  it('cannot nest endlessly', () => {
    const nested = (depth: number) => '{{#if n}}'.repeat(depth) + 'x' + '{{/if}}'.repeat(depth);
    expect(runToEnd(filling(nested(64)))).to.equal('x');
    expect(failure(nested(65))[1]).to.equal('line 1: blocks are nested more than 64 deep');
    expect(failure('{{#if n}}'.repeat(49_000))[1]).to.contain('nested more than 64 deep');
    expect(failure(`{{#if no}}${'{{else each no}}'.repeat(1000)}{{/if}}`)[1]).to.contain('nested more than 64 deep');
    expect(failure(`{{upper ${'(upper '.repeat(17)}"a"${')'.repeat(17)}}}`)[1]).to.contain('is nested too deeply');
    expect(failure(`{{#if \`${'('.repeat(40)}n${')'.repeat(40)}\`}}{{/if}}`)[1]).to.contain('nested too deeply');
    expect(failure(`{{#if \`${'not '.repeat(40)}n\`}}{{/if}}`)[1]).to.contain('nested too deeply');
  });

  it('may have very many branches, which are not nesting', () => {
    expect(runToEnd(filling(`{{#if no}}${'{{else if no}}a'.repeat(20_000)}{{else}}b{{/if}}`))).to.equal('b');
  });

  it('has a limit of tags', () => {
    expect(runToEnd(filling('{{n}}'.repeat(50_000)))).to.have.length(50_000);
    expect(failure('{{n}}'.repeat(50_001))[1]).to.equal('it has more than 50000 tags');
    expect(failure(Array.from({ length: 45_000 }, (_, at) => `{{v${at}}}`).join(''))[1]).to.contain(STEPS);
    expect(failure(`{{${'a'.repeat(3000)}}}`)[1]).to.contain('longer than 2048 characters');
  });

  it('shares one budget with all texts of its message', () => {
    const filler = createMergeEngine('handlebars', VARS, { now });
    const rounds = 1_000_000 / 1000 / 3;
    for (let round = 0; round < rounds - 100; round++)
      runToEnd(filler.filling('{{#each many}}{{this}}{{/each}}', 'text'));
    expect(() => {
      for (let round = 0; round < 200; round++) runToEnd(filler.filling('{{#each many}}{{this}}{{/each}}', 'text'));
    }).to.throw(STEPS);
  });

  it('yields to other work while it is compiled and run', () => {
    const count = (text: string) => {
      let rests = 0;
      for (const steps = filling(text); !steps.next().done; ) rests++;
      return rests;
    };
    expect(
      count('{{#each many}}{{#each @root.many.length}}{{/each}}{{this}}{{this}}{{this}}{{/each}}'),
      'one that runs',
    ).to.be.within(1, 5);
    expect(count('{{n}}'.repeat(10_000)), 'one that is read').to.be.above(20);
    expect(count('\\{{n}}'.repeat(10_000)), 'one without tags').to.be.above(3);
    expect(
      count(Array.from({ length: 1000 }, (_, at) => `{{upper v${at}}}`).join('')),
      'one with many tags to be read',
    ).to.be.above(40);
  });

  for (const unit of [
    '{',
    '{{',
    '{{n ',
    '{{!--',
    '{{!',
    '\\{{',
    '\\\\{{n}}',
    '{{n}}',
    '{{#if n}}',
    '{{/if}}',
    '{{else}}',
    '{{"',
    '{{`',
    '{{[',
    '{{(',
    ' {{~n~}} ',
    '\n{{#if n}}\n{{/if}}\n',
    '{{{',
    '}}',
    '{{n}',
    '{{a.b.c}}',
    '{{../n}}',
    '{{@root.n}}',
    '{{upper n}}',
    'é',
  ]) {
    it(`takes linear time: ${JSON.stringify(unit)} repeated`, () => {
      const run = (size: number) => {
        try {
          runToEnd(filling(repeated(unit, size)));
        } catch {
          /* is faulty */
        }
      };
      expect(growth(run, 20_000)).to.be.below(60);
    }).timeout(20_000);
  }

  it('takes a bounded time for one tag', () => {
    for (const unit of [
      '(',
      '(n ',
      ')',
      '"',
      `'`,
      '`',
      '[',
      '[n] ',
      '.',
      '../',
      'n.',
      'n ',
      'n=1 ',
      '1',
      ' ',
      '\n',
      '\\',
      '|',
      '@',
      '!',
      '=',
      '<',
      'as |',
      '{',
      '~',
      '&',
      '&lt;',
      'not ',
      '!',
    ]) {
      for (const text of [
        `{{n ${repeated(unit, 2000)}}}`,
        `{{#if \`${repeated(unit, 2000)}\`}}{{/if}}`,
        `{{${repeated(unit, 2000)}}}`,
      ]) {
        const before = process.threadCpuUsage();
        runToEnd(findingFault('handlebars', [['html', text]]));
        const { user, system } = process.threadCpuUsage(before);
        expect((user + system) / 1000, text.slice(0, 40)).to.be.below(500);
      }
    }
  }).timeout(30_000);

  it('fails only in the two expected ways (fuzz)', () => {
    const random = randomFrom(20_261_121);
    const pieces = [
      '{{',
      '}}',
      '{{{',
      '}}}',
      '{{#if n}}',
      '{{/if}}',
      '{{else}}',
      '{{elseif ',
      '{{#each many}}',
      '{{/each}}',
      '{{this}}',
      '`',
      '"',
      'n',
      ' ',
      '.',
      '../',
      '@',
      '[',
      ']',
      '(',
      ')',
      '~',
      '!',
      '--',
      '&',
      '\\',
      '__proto__',
      'constructor',
      'upper ',
      '=',
      '<',
      'not ',
      ' as |a b|',
      '\n',
      '{{^',
      '{{>',
      '{{&',
    ];
    let whole = 0;
    for (let round = 0; round < 3000; round++) {
      const text = randomText(random, pieces, 24);
      try {
        runToEnd(filling(text, 100_000));
        whole++;
      } catch (error) {
        expect(error, text)
          .to.be.instanceOf(Error)
          .with.property('name')
          .that.is.oneOf(['TemplateError', 'RenderedTooLong']);
      }
    }
    expect(whole).to.be.above(100);
    expect({}).to.not.have.property('n');
  }).timeout(30_000);
});

describe('a merge value', () => {
  it('is JSON of limited depth, in which every name is plain', () => {
    const nested = (depth: number): unknown => JSON.parse('['.repeat(depth) + ']'.repeat(depth));
    expect(readMergeValue(nested(32))).to.be.an('array');
    expect(readMergeValue(nested(33))).to.equal(undefined);
    expect(readMergeValue(nested(100_000))).to.equal(undefined);
    const odd = readMergeValue(JSON.parse('{"__proto__":{"n":1},"constructor":2,"a":null}'));
    expect(Object.entries(odd ?? {})).to.deep.equal([
      ['__proto__', { n: 1 }],
      ['constructor', 2],
      ['a', null],
    ]);
    expect(readMergeValue(undefined)).to.equal(undefined);
    expect(readMergeValue([() => 1])).to.equal(undefined);
  });

  it('is found only by its own names', () => {
    const content = readMergeValue(JSON.parse('{"__proto__":{"n":"own"},"constructor":"c"}')) ?? null;
    const filled = runToEnd(
      createMergeEngine(
        'handlebars',
        [
          { name: 'v', content },
          { name: '__proto__', content: 'var' },
        ],
        { now },
      ).filling(
        '{{v.__proto__.n}} {{v.constructor}} {{v.toString}} {{__proto__}} {{#each v}}{{@key}} {{/each}}',
        'text',
      ),
    );
    expect(filled).to.equal('own c  var __proto__ constructor ');
  });
});
