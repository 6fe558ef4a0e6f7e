"""Templates that go through the language one piece at a time, each with the same variables."""
import re

VALUES = {
    "s": "Hello, World", "u": "Äß東京 😀\u00a0x", "empty": "", "sp": "  \t a  b \n", "n": 7, "neg": -3, "z": 0, "f": 2.5, "big": 1e22,
    "t": True, "no": False, "nil": None, "l": [3, 1, 2], "ls": ["b", "A", "c"], "el": [], "d": {"b": 1, "a": [1, {"x": None}], "items": 5},
    "ed": {}, "m": [{"role": "user", "n": 1}, {"role": "tool", "n": 2}, {"role": "user", "n": 3}], "nest": [[1, 2], [3], []],
    "q": "it's \"q\" \\ \n\t\u0007\u200b", "json": '{"a": [1, 2.50, null, true], "b": "\\u00e9"}', "num": " 42 ", "flt": "1e3",
}

# Three spaces stand between two expressions.
EXPRESSIONS = r"""
s   u   q   sp   n   neg   f   big   t   no   nil   l   ls   d   m   nest   el   ed   missing
1   1.0   1e5   1e16   1e15   123456789012345678   1.5e-5   0.0001   1e-4   0.1   1_000   0x1F   0b101   0o17   -0.0
5e-324   1.7976931348623157e308   123456.789e3
'a\n\t\x41\u00e9\q\''   "a'b"   'a'   "b"   []   [1]   [1,]   ()   (1,)   (1,2)   {}   {'a':1,'b':[1,2]}
{1:2,none:3,true:4}   {'a':1,'a':2}
n+1   n-1   n*2   n/2   n//2   n%2   n**2   neg//2   neg%2   7//-2   7%-2   -7.5//2   -7.5%2   7.5%-2   2**-1   2**0.5
f*2   n/7   1/3   n//0   n%0   n/0   2**62
'a'+'b'   'a'*3   3*'a'   'a'*-1   [1]+[2]   (1,)+(2,)   [1]*2   'a'+1   1+'a'   [1]+(2,)   nil+1   missing+1
1+missing   t+t   -t   +n   -s
s~1~nil~t~f~l   missing~1   s~missing
n==7   n==7.0   t==1   '1'==1   l==[3,1,2]   d=={'b':1,'items':5,'a':[1,{'x':nil}]}   (1,2)==[1,2]   missing==nil
missing==missing   nil==nil
n!=7   n<8   n<=7   n>7   n>=7   1<2<3   1<2>3   'a'<'b'   'a'<'B'   [1,2]<[1,3]   1<'a'   nil<1   missing<1
1==1.0==t   {}<{}
'ell'in s   'x'in s   1in l   9in l   'a'in d   'z'in d   1in 'a'   1in nil   1in missing   ''in s   '東'in u
1not in l   [1,2]in nest
not t   not s   t and s   no and s   no or s   s or no   el or 'x'   nil and missing.x
s if t else n   s if no else n   s if no   (s if no) is undefined   1 if 0 else 2 if 1 else 3
s[0]   s[-1]   s[99]   s[1:3]   s[:-1]   s[::-1]   s[::2]   s[5:1:-1]   s[-3:]   s[10:99]   s[3:1]   u[0]   u[2]
u[-1]   u[1:4]   u[::-1]   u[::3]   s['x']   s[nil]   s[::0]   s['a':]
l[0]   l[-1]   l[5]   l[1:]   l[::-1]   l[-2:]   l['a']   l[t]   l.0   l.5   nest[0][1]   nest.0.1   m[0].role
m[0]['role']   m[5].role   m[-1]['n']
d.b   d['b']   d.a   d['items']   d.items()   d.zz   d['zz']   d.zz.yy   d.a[1].x   d.a[1].x.y   ed.x.y   nil.x   n.x
missing.x   missing['x']   d[nil]   d[1:2]   d[[1]]
d.keys()   d.values()   d.items()|list   d.get('b')   d.get('q')   d.get('q',1)   d.get()   d.get('a',1,2)
d.keys()|list   d.values()|list   d.items()[0]   d.keys()|length   d.items()|first
s.upper()   s.lower()   s.title()   s.capitalize()   s.swapcase()   u.upper()   u.lower()   u.title()
'they\'re x2y'.title()   'ß'.upper()   'straße'.capitalize()
sp.strip()   sp.lstrip()   sp.rstrip()   s.strip('Hd')   s.lstrip('leH')   s.rstrip('dl')   u.strip('Äx')
s.strip(nil)   s.strip(1)   '\u2003a\x85'.strip()
sp.split()   s.split()   s.split(',')   s.split('l')   s.split('l',1)   s.split('l',0)   sp.split(nil,1)
'a  b'.split(' ',maxsplit=1)   s.split('')   ''.split()   ''.split(',')   s.split(sep='o')
s.rsplit('l',1)   s.rsplit()   sp.rsplit(nil,1)   s.rsplit('l')   'a\nb\r\nc\rd'.splitlines()   'a\n'.splitlines(true)
s.partition('o')   s.rpartition('o')   s.partition('zz')
s.replace('l','L')   s.replace('l','L',1)   s.replace('','-')   s.replace('','-',2)   u.replace('東','x')
s.replace('l')   s.replace(1,2)
s.startswith('He')   s.startswith(('x','H'))   s.endswith('ld')   s.endswith('')   s.startswith('l',2)
s.endswith('l',0,4)   s.startswith(1)   u.startswith('Ä')
s.find('o')   s.find('zz')   s.rfind('o')   s.find('o',5)   s.index('o')   s.index('zz')   s.count('l')   s.count('')
u.find('東')   u.find('京',-4)   s.find('l',3,4)
'-'.join(ls)   '-'.join(l)   ''.join([])   ','.join(d)   '{}-{}'.format(1,'a')   '{0}{1}{0}'.format(1,2)
'{a}{{}}'.format(a=s)   '{:>5}|{:<5}|{:^5}'.format(1,'a','b')   '{:.2f}'.format(f)   '{:05d}'.format(n)
'{:,}'.format(1234567)   '{!r}'.format(s)   '{}'.format()   '{'.format(1)
s.isalpha()   'abc'.isalpha()   '12'.isdigit()   ''.isdigit()   ' '.isspace()   'AB'.isupper()   'ab1'.islower()
'a1'.isalnum()   s.removeprefix('He')   s.removesuffix('ld')   s.center(20)   'ab'.center(5)   'ab'.ljust(4,'.')
'ab'.rjust(4)   '-5'.zfill(4)   '5'.zfill(3)   s.nothing()
'%s'   %   1   '%s-%s'%(1,'a')   '%d'%3.7   '%5.2f|%-5d|%05d|%+d'%(f,n,n,n)   '%x'%255   '%%'%()   '%s'   '%d'%s
'%s'%(1,2)   '%s%s'%1   '%(a)s'%{'a':1}   '%r'%s   '%.2s'%s   '%e'%f   '%g'%f
l|length   s|length   u|length   d|length   nil|length   n|length   missing|length   l|count   sp|trim   s|trim('Hd')
n|trim
s|upper   n|upper   s|lower   s|title   u|title   'a-b (c'|title   s|capitalize   s|string   n|string   nil|string
l|string   missing|string   d|string
missing|default   nil|default('x')   missing|default('x')   missing|default('x',true)   el|default('x',true)
''|default('x',boolean=true)   missing|d(1)   d.zz|default([])
ls|join   ls|join(',')   l|join('-')   m|join(',',attribute='role')   5|join   missing|join(',')   s|join('.')
d|join(',')
d|items|list   missing|items|list   ls|first   ls|last   el|first   el|last   s|first   s|last   d|first   d|last
missing|first   (el|first)|default('none')   l|list   s|list   u|list   d|list   5|list
l|sort   ls|sort   ls|sort(case_sensitive=true)   l|sort(reverse=true)
m|sort(attribute='n',reverse=true)|map(attribute='n')|list   d|dictsort   d|dictsort(reverse=true)
{'b':1,'A':2}|dictsort(true)   {'b':1,'A':2}|dictsort(by='value')   [1,'a']|sort
l|min   l|max   el|min   ls|min   ls|max(case_sensitive=true)   m|max(attribute='n')   l|sum   m|sum(attribute='n')
l|sum(start=10)   ls|sum   l|reverse|list   s|reverse   u|reverse   l|unique|list   ['a','A','b']|unique|list
['a','A']|unique(case_sensitive=true)|list
m|selectattr('role','equalto','user')|list   m|selectattr('role')|list   m|selectattr('zz')|list
m|selectattr('zz','defined')|list   m|rejectattr('role','eq','user')|map(attribute='n')|list   l|select('gt',1)|list
l|select|list   [0,1,'']|reject|list   l|reject('odd')|list   m|selectattr('n','in',[1,3])|list|length
l|select('nope')|list
ls|map('upper')|list   m|map(attribute='role')|join(',')   m|map(attribute='zz',default='-')|list
ls|map('replace','b','x')|list   nest|map('length')|list   nest|map(attribute='0')|list   l|map|list
l|map('nope')|list   nest|map('join',',')|list   l|select('gt',1)|length
sp|replace('a','b')   s|replace('l','L',1)   n|replace('7','8')   s|truncate(5)   s|truncate(9)   s|truncate(5,true)
s|truncate(9,true,'..',0)   'foo bar baz'|truncate(8,false,'..',0)   'a\nb\n\nc'|indent   'a\nb'|indent(2,true)
'a\n\nb'|indent(2,blank=true)   'a\nb'|indent('>>')   ''|indent   'a\n'|indent   s|wordcount   'ab'|center(6)
num|int   'x'|int   'x'|int(5)   '4.7'|int   f|int   nil|int   l|int   '0x1f'|int(base=16)   'ff'|int(0,16)   t|int
'1_0'|int   flt|float   'x'|float   num|float   n|float   nil|float(1.5)   missing|int
neg|abs   f|abs   s|abs   2.5|round   3.5|round   2.567|round(2)   n|round   2.1|round(method='ceil')
2.9|round(0,'floor')   1234.5|round(-2)   s|round
s|tojson   u|tojson   u|tojson(ensure_ascii=true)   q|tojson   d|tojson   d|tojson(indent=2)
[[],{}]|tojson(indent=1)   d|tojson(sort_keys=true)   d|tojson(separators=(',',':'))   (1,2)|tojson   f|tojson
big|tojson   1.0|tojson   nil|tojson   t|tojson   missing|tojson   {1:2,none:3,true:4,1.5:5}|tojson
l|tojson(indent=4)   d|tojson(indent='\t')   range(3)|tojson   d.keys()|tojson   1e400|tojson   '\x7f'|tojson
d|tojson(nope=1)
json|from_json   (json|from_json).a   'x'|from_json   json|from_json|tojson
'<b>'|safe+'<i>'   '<b>'|escape   '<i>'+('<b>'|safe)   ('<b>'|e)~'<i>'   '<&>"\''|e
range(3)   range(3)|list   range(1,7,2)|list   range(5,0,-2)|list   range(0)   range(2)[1]   range(1,9,3)
range(0,1000000)|list   range('a')   range(3)|length   range(3)|last   range(1,2,0)
dict(a=1)   dict(d,z=1)|length   namespace(a=1).a   namespace().b   namespace({'a':2}).a   dict({'a':1},a=2)
strftime_now('%Y-%m-%d')   strftime_now('%d %b %Y')   strftime_now('%B %d, %Y')   raise_exception('No!')
raise_exception()
s is string   n is string   n is number   t is number   t is boolean   n is integer   f is float   t is integer
l is sequence   d is sequence   s is sequence   missing is sequence   n is sequence   d.items() is sequence
l is iterable   n is iterable   s is iterable   missing is iterable   d.keys() is iterable   d is mapping
l is mapping   nil is none   missing is none   missing is defined   s is defined   d.zz is defined
missing is undefined   t is true   1 is true   no is false   z is false
n is odd   n is even   n is divisibleby 7   n is divisibleby(2)   n is not odd   s is not none   l is sameas l
n is eq 7   n is gt(3)   n is lt 3   n is in l   3 is in(l)   'ab' is lower   'AB' is upper   s is callable
range is callable   s is nope   n is ge 7   n is ne 7   f is odd   s is odd
not s is string   s is string and n is number   n is defined and n>3
l.append(4)   [1].pop()   el.pop()   l.pop(0)   l.index(2)   l.count(1)   l.insert(0,9)   l.extend([1])   d.pop('b')
d.pop('zz')   d.pop('zz',1)   d.update({'q':1})   d.setdefault('w',2)   l.copy()   d.copy()|length
s()   l()   missing()   nil()   d.zz()   s.upper(1)   l|length(1)   l|nope   n|nope(1)
-n**2   2**3**2   -f|abs   n+1|string   1+2*3   (1+2)*3   1~2+3   'a'~'b'*2   not n==7   n|string+'x'   10-3-2   2*3%4
n-1|abs   [n,s][0]   {'a':n}.a   {'a':n}['a']   (n,s)[1]   'abc'[1]   'a'.upper()   [1,2]|length   1.5.x
1+   (1   [1   {1   s.   s|   s|1   1if   'a   .x   [1;2]   s[   a=1   f(a=1,2)   f(*l)   s|join(d=',')   l|join(e=1)
m|map(attribute='t.0.f',default='-')|list   m|map(attribute='n.x',default=nil)|list   m|groupby('role')
m|groupby('zz',default='q')|length   ls|groupby(0)|list   [{'a':'B'},{'a':'a'},{'a':'b'}]|groupby('a')
[{'a':'B'},{'a':'a'},{'a':'b'}]|groupby('a',case_sensitive=true)   (m|groupby('role')|first).grouper
(m|groupby('role')|last).list|length   m|groupby('zz')   s|attr('zz')   d|attr('b') is defined   n|attr('x')
dict([('a',1),('b',2)])   dict([[1,2]],a=3)   dict([1])   dict([(1,2,3)])   dict(1)   'upper' is filter
'zz' is filter   'odd' is test   'zz' is test   n is filter   cycler()   cycler(1,2).current   joiner()()
'{:5}'.format(t)   '{:d}{:x}'.format(t,no)
true true   True False   None   none   is 1   s+is   if+else
"""

STATEMENTS = [
    '{% if t %}a{% elif n %}b{% else %}c{% endif %}',
    '{% if no %}a{% elif n %}b{% else %}c{% endif %}',
    '{% if missing %}a{% else %}c{% endif %}',
    '{% for x in l %}{{ x }},{% endfor %}',
    '{% for x in el %}{{ x }}{% else %}none{% endfor %}',
    '{% for x in missing %}{{ x }}{% else %}none{% endfor %}',
    "{% for x in l if x > 1 %}{{ loop.index }}/{{ loop.length }}:{{ x }}{{ ',' if not loop.last }}{% endfor %}",
    '{% for x in l if x > 9 %}{{ x }}{% else %}none{% endfor %}',
    '{% for x in nil %}{% endfor %}',
    '{% for x in 5 %}{% endfor %}',
    '{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}',
    '{% for k, v in nest %}{% endfor %}',
    '{% for k in d %}{{ k }}{% endfor %}',
    '{% for c in u %}[{{ c }}]{% endfor %}',
    '{% for x in l %}{{ loop.index0 }}{{ loop.index }}{{ loop.first }}{{ loop.last }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.length }}{{ loop.depth }}{{ loop.previtem }}|{{ loop.nextitem }}\n{% endfor %}',
    "{% for x in l %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{{ loop.cycle('a', 'b') }}{{ loop.changed(x > 1) }}{{ loop.zz }}{% endfor %}",
    '{% for x in l %}{% for y in ls %}{{ loop.index }}{{ y }}{% endfor %}{{ loop.index }}{% endfor %}',
    '{{ loop }}',
    '{% for x in l %}{% endfor %}{{ x }}{{ loop is defined }}',
    '{% for x in l %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}',
    '{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}',
    '{% break %}',
    '{% for x in range(3) %}{% for y in range(3) %}{% if y == 1 %}{% break %}{% endif %}{{ x }}{{ y }}{% endfor %}{% endfor %}',
    '{% set a = 1 %}{% for x in l %}{% set a = a + x %}{{ a }}{% endfor %}{{ a }}',
    '{% set ns = namespace(a=1) %}{% for x in l %}{% set ns.a = ns.a + x %}{% endfor %}{{ ns.a }}',
    '{% if t %}{% set a = 5 %}{% endif %}{{ a }}',
    '{% set a, b = 1, 2 %}{{ a }}{{ b }}',
    '{% set a, b = [1] %}',
    '{% set s.x = 1 %}',
    '{% set d.x = 1 %}{{ d }}',
    '{% set q.x = 1 %}',
    '{% set a %}x{{ n }}{% endset %}{{ a }}',
    "{% set a | upper | replace('X', 'y') %}x{{ n }}{% endset %}{{ a }}",
    '{% set a %}{% set b = 1 %}{% endset %}{{ b is defined }}',
    '{% for x in [1, 2, 3] %}{{ y is defined }}{% set y = x %}{{ y }}{% endfor %}',
    '{% for x in [1, 2] %}{% set y = x %}{% for z in [1, 2, 3] if z > y %}{{ loop.last }}{{ y }}{% endfor %}{% endfor %}',
    '{{ range(7, -7, -3) | list }}{{ range(0, 7, 3) | list }}{{ range(3, 3) | list }}{{ range(5)[1:4] }}{{ [1, 2, 3, 4][1:3] + [5] }}',
    '{% set a = [1, 2, 3] %}{% set b = a[1:] %}{% set _ = b.append(4) %}{{ a }}{{ b }}{% set _ = a.append(5) %}{{ a }}{{ b }}',
    '{% macro f(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(1) }}|{{ f(1, 3) }}|{{ f(a=1, c=5) }}|{{ f() }}|{{ f(b=1) }}',
    '{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, 2) }}',
    '{% macro f(a) %}{{ a }}{% endmacro %}{{ f(z=2) }}',
    '{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, a=2) }}',
    '{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}{{ n }}',
    '{% macro f() %}{{ g }}{% endmacro %}{% set g = 1 %}{{ f() }}{% set g = 2 %}{{ f() }}',
    '{% macro f() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, a=3) }}',
    '{% macro f() %}[{{ caller() }}]{% endmacro %}{% call f() %}in{{ n }}{% endcall %}',
    '{% macro f() %}{{ caller(1) }}{% endmacro %}{% call(x) f() %}<{{ x }}>{% endcall %}',
    '{% macro f() %}{% set z = 9 %}{% endmacro %}{{ f() }}{{ z is defined }}',
    '{{ f }}{{ f is defined }}',
    "{% for x in l %}{% macro f(a) %}{{ a }}{{ x }}{% endmacro %}{{ f('-') }}{% endfor %}{{ f is defined }}",
    '{% macro f() %} a {% endmacro %}[{{ f() | trim }}]{{ f() | length }}',
    '{% filter upper %}a{{ s }}{% endfilter %}',
    "{% filter replace('a', 'b') | upper %}aab{% endfilter %}",
    '{% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}',
    '{% generation %}x{% set y = 1 %}{% endgeneration %}{{ y is defined }}',
    '{% for x in l %}{% generation %}{{ x }}{% endgeneration %}{% endfor %}',
    '{% raw %}{{ a }}{% if %}{% endraw %}',
    'a{%- raw -%} x {%- endraw -%} b',
    '{# a #}b{#- c -#} d {# e',
    '{# a\n#}\nb',
    '  {# c #}\nb',
    '{% print n %}{{ n, s }}',
    'a\n  {% if t %}\n  b\n  {% endif %}\nc\n',
    'a\n  {%- if t -%}\n  b\n  {%- endif -%}\nc\n',
    'a\n  {%+ if t %}\n b {% endif +%}\nc',
    '  {{ n }}\n  {{- n -}}\n  x',
    'a  {{- n }}  {{ n -}}  b',
    '\n\n{{ n }}\n\n',
    '{% if t %}\n\n{{ n }}{% endif %}\n\n',
    'a {% if t %} b {% endif %} c',
    '\t{% if t %}\r\nx\r\n{% endif %}\r\n',
    'x\r\ny\rz\n',
    '  \n  {% set a = 1 %}  \n{{ a }}',
    '{{ n }}{% set a = 1 %}\n  {% set b = 2 %}\n{{ a }}',
    "{{ '\n' }}x",
    '{%if t%}x{%endif%}',
    "{{ {'a': {'b': 1}} }}",
    "{{ {'a': {'b': 1}}.a.b }}",
    '{{ \'}}\' }}{{ "%}" }}',
    '{{ }}',
    '{% %}',
    '{{ n',
    '{% if t',
    '{% if t %}',
    '{% endif %}',
    '{% for %}{% endfor %}',
    '{% for x l %}{% endfor %}',
    '{% set %}',
    '{% nope %}',
    '{% if t %}{% endfor %}',
    '{{ n }} }} %} #}',
    '{% for x in l %}{% set l = [] %}{{ x }}{% endfor %}',
    '{% for m in m %}{{ m.n }}{% endfor %}',
    '{% for x in l %}{{ x }}{% set x = 5 %}{{ x }}{% endfor %}',
    '{% set l = l + [4] %}{% for x in l[1:] %}{{ x }}{% endfor %}',
    '{% set a = [] %}{% for x in l %}{% set _ = a.append(x * 2) %}{% endfor %}{{ a }}',
    '{% set a = l %}{% for x in a %}{% if loop.index < 5 %}{% set _ = a.append(x) %}{% endif %}{{ x }}{% endfor %}',
    '{% set n = namespace(l=[]) %}{% set n.l = n.l + [1] %}{{ n.l }}',
    '{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}',
    '{% for x in 1, 2, 3 %}{{ x }}{% endfor %}',
    '{% for x in l | sort | reverse %}{{ x }}{% endfor %}',
    '{% for x in (l if t else ls) %}{{ x }}{% endfor %}',
    "{% set g = l | select('gt', 1) %}{{ g | list }}{{ g | list }}",
    "{% if s == 'Hello, World' and n in [7] or missing.x %}y{% endif %}",
    '{{ raise_exception(\'line\nbreak "q" é\') }}',
    "{% if n is defined and n is not none and n != '' %}y{% endif %}",
    "{% set x = namespace() %}{{ x.y is defined }}{% set x.y = 1 %}{{ x.y }}{{ x['y'] }}",
    "{% for x in m | selectattr('role', '==', 'user') %}{{ loop.index }}{{ x.n }}{{ loop.last }}{% endfor %}",
    '{% for x in l %}{{ loop.last }}{% if loop.index == 1 %}{% set _ = l.append(9) %}{% endif %}{% endfor %}',
    '{%- set a = 1 -%} {{- a -}} ',
    '{{ n -}}\n{{- n }}',
    '{{- -n }}{{+n}}',
    '{% call missing() %}{% endcall %}',
    '{% macro f(a, b=1, c) %}{% endmacro %}',
    '{% set true = 1 %}',
    '{% for true in l %}{% endfor %}',
    '{% set a = 1 if no %}{{ a is defined }}{{ a }}',
    "{{ 'a' 'b' }}",
    '{{ n if n > 3 else s if t else f }}',
    '{% set x = (1, 2) %}{{ x[0] }}{{ x | length }}',
    '{% for x in l: %}{{ x }}{% else: %}n{% endfor %}{% if t: %}a{% elif n: %}b{% else: %}c{% endif %}',
    '{% if t :: %}a{% endif %}',
    '{% if t %}a{% endif: %}',
    "{% for g in m | groupby('role') %}{{ g.grouper }}{% for x in g.list %}{{ x.n }}{% endfor %}{{ g }}{% endfor %}",
    "{% for k, v in m | groupby('role') %}{{ k }}{{ v | length }}{% endfor %}",
    "{% set j = joiner('; ') %}{% for x in l %}{{ j() }}{{ x }}{% endfor %}",
    "{% set c = cycler('a', 'b') %}{% for x in l %}{{ c.next() }}{{ c.current }}{% endfor %}{{ c.reset() }}{{ c.next() }}",
]


def questions():
    for e in re.split(r"\n|   ", EXPRESSIONS.strip()):
        yield e, {"template": "{{ " + e + " }}", "request": VALUES, "now": 1767225600}
        as_value = "{% set r = " + e + " %}{{ [r] }}{{ r is defined }}{{ 1 if r }}"
        yield e + " as a value", {"template": as_value, "request": VALUES, "now": 1767225600}
    for s in STATEMENTS:
        yield s, {"template": s, "request": VALUES, "now": 1767225600}
