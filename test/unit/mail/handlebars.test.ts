import { expect } from 'chai';
import { runToEnd } from '../../../src/base/concurrency.ts';
import { createMergeEngine, findingFault, type TextForm } from '../../../src/mail/merge/language.ts';
import type { MergeValue } from '../../../src/mail/merge/values.ts';

const now = new Date('2026-01-05T14:07:09Z');
const VARS: Readonly<Record<string, MergeValue>> = {
  FNAME: '<Ann & "Bob">',
  n: '5',
  ten: 10,
  yes: true,
  no: false,
  zero: 0,
  empty: '',
  nothing: null,
  none: [],
  city: 'são paulo',
  title: 'Dr',
  items: [
    { name: 'Cup', price: 3, tags: ['red', 'big'] },
    { name: 'Pen', price: 12, tags: [] },
  ],
  words: ['a', 'b', 'c'],
  user: { name: 'Jo', home: { city: 'Bern' }, 'odd key': 'odd' },
};
const fill = (text: string, form: TextForm = 'html', vars = VARS) =>
  runToEnd(
    createMergeEngine(
      'handlebars',
      Object.entries(vars).map(([name, content]) => ({ name, content })),
      { now, onUnsub: (url) => `https://u.test/?to=${url}&x` },
    ).filling(text, form),
  );

/** Texts and what becomes of them. */
const MERGED: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  'puts in values, their names in any case': {
    'Hi {{n}}!': 'Hi 5!',
    '{{ten}}{{TEN}} {{ yes }} {{no}} {{zero}}': '1010 true false 0',
    '{{words}}|{{user}}|{{nothing}}|{{nope}}': 'a,b,c|||',
  },
  'escapes for HTML what is not asked for raw': {
    '{{fname}}': '&lt;Ann &amp; &quot;Bob&quot;&gt;',
    '{{{fname}}} {{&fname}}': '<Ann & "Bob"> <Ann & "Bob">',
    '<a href="{{unsub \'http://x.test\'}}">': '<a href="https://u.test/?to=http://x.test&amp;x">',
  },
  'leaves what is escaped': {
    '\\{{thing}}': '{{thing}}',
    '\\\\{{n}}': '\\5',
    'a \\{{x}} {{n}} \\{{y}}': 'a {{x}} 5 {{y}}',
    'a{b}c }} {': 'a{b}c }} {',
  },
  'follows paths': {
    '{{user.name}} {{user.home.city}} {{user/name}}': 'Jo Bern Jo',
    '{{user.[odd key]}}': 'odd',
    '{{items.1.name}} {{items.[0].name}} {{items.length}} {{words.[2]}}': 'Pen Cup 2 c',
    '{{user.Name}}{{user.nope.deeper}}{{items.9.name}}{{n.x}}': '',
    '{{this.n}} {{./n}} {{@root.user.name}}': '5 5 Jo',
    '{{../n}}': '',
  },
  'calls helpers': {
    '{{upper "a"}} {{lower "ÄB"}} {{title city}} {{url "a b&c"}}': 'A äb São Paulo a%20b%26c',
    '{{striptags "<p>x <b>y</b></p>"}} {{{striptags "1 < 2"}}}': 'x y 1 < 2',
    '{{date}} {{date "Y-m-d H:i"}}': '05/01/2026 2026-01-05 14:07',
    '{{upper (lower (title user.name))}}': 'JO',
    '{{lookup user "name"}} {{lookup words 1}} {{lookup nope 1}}': 'Jo b ',
    '{{title}} {{this.title}}': 'Dr Dr',
    '{{upper nope}}{{upper}}': '',
  },
  'shows the branch that holds': {
    '{{#if n}}a{{else}}b{{/if}}': 'a',
    '{{#if nope}}a{{else}}b{{/if}}': 'b',
    '{{#if zero}}a{{else}}b{{/if}}{{#if empty}}a{{/if}}{{#if none}}a{{/if}}{{#if no}}a{{/if}}{{#if nothing}}a{{/if}}':
      'b',
    '{{#unless nope}}a{{else}}b{{/unless}}': 'a',
    '{{#if nope}}a{{elseif n}}b{{else}}c{{/if}}': 'b',
    '{{#if nope}}a{{else if nope}}b{{else if n}}c{{else}}d{{/if}}': 'c',
    '{{#if nope}}a{{elseif nope}}b{{else}}c{{/if}}': 'c',
    '{{#if nope}}a{{else unless nope}}b{{/if}}': 'b',
    '{{^nope}}a{{/nope}}{{^n}}b{{else}}c{{/n}}{{#if nope}}a{{^}}d{{/if}}': 'acd',
    '{{#if (upper empty)}}a{{else}}b{{/if}}': 'b',
  },
  'compares in backticks': {
    '{{#if `n < 10`}}a{{/if}}{{#if `n > 10`}}b{{/if}}{{#if `n >= 5 and ten <= 10`}}c{{/if}}': 'ac',
    '{{#if `n == "5"`}}a{{/if}}{{#if `n === 5`}}b{{/if}}{{#if `n != 5`}}c{{/if}}{{#if `user.name = \'Jo\'`}}d{{/if}}':
      'abd',
    '{{#if `not nope`}}a{{/if}}{{#if `!nope && (no || yes)`}}b{{/if}}{{#if `nope or n`}}c{{/if}}{{#if `not (n == 5)`}}d{{/if}}':
      'abc',
    '{{#if `n &lt; 10 &amp;&amp; n &gt; 1`}}a{{/if}}': 'a',
    '{{#if `nope < 1`}}a{{/if}}{{#if `nope >= 0`}}b{{/if}}{{#if `nope == null`}}c{{/if}}{{#if `nope == ""`}}d{{/if}}':
      'cd',
    '{{#unless `n < 10`}}a{{else}}b{{/unless}}{{#if nope}}{{elseif `n == 5`}}c{{/if}}': 'bc',
    '{{#each items}}{{#if `price > ../ten and @index == 1`}}{{name}}{{/if}}{{/each}}': 'Pen',
    '{{`n < 10`}} {{#if `true and not false`}}a{{/if}}': 'true a',
    '{{#if `items.length == 2`}}a{{/if}}{{#if `n < -1.5`}}b{{/if}}': 'a',
    '{{#if `a == "x}}y"`}}{{else}}a{{/if}}': 'a',
  },
  'repeats for every value': {
    '{{#each items}}{{@index}}{{name}}{{#if @first}},{{/if}}{{#if @last}}.{{/if}}{{/each}}': '0Cup,1Pen.',
    '{{#each words}}{{this}}{{.}}{{/each}}': 'aabbcc',
    '{{#each user}}{{@key}}={{this}};{{/each}}': 'name=Jo;home=;odd key=odd;',
    '{{#each none}}a{{else}}b{{/each}}{{#each nope}}a{{else}}c{{/each}}{{#each n}}a{{else}}d{{/each}}': 'bcd',
    '{{#each items}}{{#each tags}}{{this}}/{{../name}}/{{../../n}}/{{@../index}}/{{@root.ten}} {{else}}none{{/each}}{{/each}}':
      'red/Cup/5/0/10 big/Cup/5/0/10 none',
    '{{#each items as |item place|}}{{place}}{{item.name}}{{#each item.tags as |tag|}}{{tag}}{{place}}{{/each}}{{/each}}':
      '0Cupred0big01Pen',
    '{{#with user}}{{name}}{{#with home}}{{city}}{{../name}}{{/with}}{{/with}}{{#with nope}}a{{else}}b{{/with}}':
      'JoBernJob',
    '{{#items}}{{name}}{{/items}}{{#user}}{{name}}{{/user}}{{#yes}}{{n}}{{/yes}}{{#no}}a{{else}}b{{/no}}': 'CupPenJo5b',
    '{{#if nope}}a{{else each words}}{{this}}{{else}}z{{/if}}': 'abc',
  },
  'takes out lines that only hold a block': {
    'a\n{{#if n}}\nb\n{{else}}\nc\n{{/if}}\nd': 'a\nb\nd',
    'a\r\n  {{#if n}}  \r\n  b\r\n{{/if}}\r\nd': 'a\r\n  b\r\nd',
    'a {{#if n}}\nb {{/if}}\nc': 'a \nb \nc',
    '  {{#if n}}\nA\n{{/if}}  ': 'A\n',
    '\t{{! x }}\na': 'a',
    '  {{#if n}}{{/if}}': '  ',
    '{{! x }}\na\n{{!-- {{x}} --}}\nb': 'a\nb',
    'a {{~n~}} b': 'a5b',
    'a\n{{n}}\nb': 'a\n5\nb',
    '{{#if n~}}  a  {{~/if}}': 'a',
  },
  'has nothing but what the account gave': {
    '{{constructor}}{{__proto__}}{{toString}}{{hasOwnProperty}}': '',
    '{{user.constructor}}{{user.__proto__}}{{user.toString}}{{words.map}}{{words.constructor.name}}{{fname.length}}{{fname.constructor}}{{ten.toFixed}}':
      '',
    '{{lookup user "__proto__"}}{{lookup words "constructor"}}{{#with constructor}}a{{/with}}{{#each __proto__}}a{{/each}}{{@constructor}}{{@root.constructor}}{{#with @root}}{{constructor}}{{/with}}{{this.constructor}}':
      '',
  },
};

/** Texts that are no templates, and what is said of them. */
const FAULTY: Readonly<Record<string, string>> = {
  '{{#if n}}': 'line 1: the block {{#if}} is not closed',
  'a\nb {{/if}}': 'line 2: {{/if}} closes no block',
  '{{#if n}}{{/each}}': 'line 1: {{/each}} does not close {{#if}}',
  '{{else}}': 'line 1: an {{else}} belongs to no block',
  '{{#if n}}{{else}}{{else}}{{/if}}': 'line 1: {{#if}} has an {{else}} already',
  '{{n': 'the tag {{n is not closed, or longer than 2048 characters',
  '{{!-- x }}': 'a comment is not closed',
  '{{> part}}': 'partials ({{> …}}) are not supported',
  '{{#> part}}{{/part}}': 'partials ({{> …}}) are not supported',
  '{{#*inline "a"}}{{/inline}}': 'decorators ({{* …}}) are not supported',
  '{{{{raw}}}}{{{{/raw}}}}': 'raw blocks ({{{{…}}}}) are not supported',
  '{{shout n}}': 'line 1: there is no helper "shout"',
  '{{constructor n}}': 'line 1: there is no helper "constructor"',
  '{{#shout n}}{{/shout}}': 'line 1: there is no block helper "shout"',
  '{{#if}}{{/if}}': 'line 1: {{#if}} takes one value',
  '{{#each a b}}{{/each}}': 'line 1: {{#each}} takes one value',
  '{{upper "a" "b"}}': 'line 1: {{upper}} takes at most 1 value',
  '{{lookup user}}': 'line 1: {{lookup}} takes 2 values',
  '{{upper a="b"}}': 'line 1: values with names (a=…) are not supported',
  '{{a b}c}}': 'line 1: {{a b}c}} cannot be read',
  '{{}}': 'line 1: {{}} cannot be read',
  '{{words.2}}': 'line 1: {{words.2}} cannot be read',
  '{{#if `n <`}}{{/if}}': 'line 1: `n <` cannot be read',
  '{{#if `n ; x`}}{{/if}}': 'line 1: `n ; x` cannot be read at "; x"',
  '{{#if `f(x)`}}{{/if}}': 'line 1: `f(x)` cannot be read',
  '{{#if `(n`}}{{/if}}': 'line 1: `(n` cannot be read',
};

describe('the handlebars merge language', () => {
  for (const [name, texts] of Object.entries(MERGED)) {
    it(name, () => {
      for (const [text, expected] of Object.entries(texts)) expect(fill(text), text).to.equal(expected);
    });
  }

  it('does not escape in plain text', () => {
    expect(fill('{{fname}} {{{fname}}}', 'text')).to.equal('<Ann & "Bob"> <Ann & "Bob">');
  });

  it('uses the last of two variables with one name', () => {
    expect(
      runToEnd(
        createMergeEngine(
          'handlebars',
          [
            { name: 'Name', content: 'a' },
            { name: 'NAME', content: ['b'] },
          ],
          { now },
        ).filling('{{name}}', 'text'),
      ),
    ).to.equal('b');
  });

  it('has no unsubscribe link outside real sending', () => {
    expect(
      runToEnd(createMergeEngine('handlebars', [], { now }).filling('a{{unsub "http://x"}}b{{unsub}}', 'text')),
    ).to.equal('ab');
  });

  it('reports an error in a template, and its line', () => {
    for (const [text, expected] of Object.entries(FAULTY)) {
      expect(() => fill(text), text)
        .to.throw(expected)
        .with.property('name', 'TemplateError');
      expect(
        runToEnd(
          findingFault('handlebars', [
            ['subject', 'ok {{n}}'],
            ['html', text],
          ]),
        ),
        text,
      ).to.equal(`html: ${expected}`);
    }
  });

  it('accepts valid templates, and text of the other language', () => {
    for (const text of Object.values(MERGED).flatMap((texts) => Object.keys(texts)))
      expect(runToEnd(findingFault('handlebars', [['html', text]])), text).to.equal(undefined);
    expect(runToEnd(findingFault('mailchimp', [['html', '{{#if']]))).to.equal(undefined);
  });

  it('ignores the tags of the other language, and vice versa', () => {
    expect(fill('*|N|* {{n}}')).to.equal('*|N|* 5');
    expect(
      runToEnd(
        createMergeEngine(
          'mailchimp',
          [
            { name: 'n', content: 5 },
            { name: 'no', content: false },
          ],
          { now },
        ).filling('*|N|* *|NO|* {{n}}', 'html'),
      ),
    ).to.equal('5 false {{n}}');
  });
});
