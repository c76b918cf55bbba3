import { loadModule, parseSync } from "libpg-query";

export type Columns = ReadonlyMap<string, ReadonlySet<string>>;

const TENANT_COLUMNS = ["team_id", "environment"] as const;

/** A part of a parsed statement, as Postgres's own parser gives it: a node is an object whose one key is its type. */
type Tree = { [name: string]: Tree | Tree[] | string | number | boolean | undefined };

const isTree = (value: unknown): value is Tree => typeof value === "object" && value !== null && !Array.isArray(value);
const child = (node: Tree | undefined, name: string): Tree | undefined => {
  const value = node?.[name];
  return isTree(value) ? value : undefined;
};
const children = (node: Tree | undefined, name: string): Tree[] => {
  const value = node?.[name];
  return Array.isArray(value) ? value.filter(isTree) : [];
};
const text = (node: Tree | undefined, name: string): string => {
  const value = node?.[name];
  return typeof value === "string" ? value : "";
};

/** A source that a FROM, an UPDATE or a DELETE reads: a table, a CTE, a subquery or a function. */
interface Source {
  name: string;
  table: string;
  columns: ReadonlySet<string> | undefined;
  /** A tenant's table. */
  owned: boolean;
  /** Only rows of one tenant, or rows that a key of such a row leads to. */
  scoped: boolean;
  /** Tenant columns that are compared with a value or with those of a scoped source. */
  bound: Set<string>;
  query?: Tree;
}

interface Scope {
  sources: Source[];
  parent: Scope | undefined;
}

type Ctes = ReadonlyMap<string, boolean>;

/** A column that identifies a row, of its own table or of another one. */
const isKey = (column: string): boolean => /(^|_)id$/.test(column);

class Finder {
  readonly unscoped = new Set<string>();
  readonly #tables: Columns;
  readonly #owned: ReadonlySet<string>;
  #reporting = true;

  constructor(tables: Columns) {
    this.#tables = tables;
    this.#owned = new Set(
      [...tables].flatMap(([table, columns]) => (TENANT_COLUMNS.every((name) => columns.has(name)) ? [table] : [])),
    );
  }

  /** Visits a query or a command. @returns whether its rows are one tenant's */
  visit(node: Tree, parent?: Scope, known: Ctes = new Map()): boolean {
    const [[type, body] = ["", undefined]] = Object.entries(node);
    if (!isTree(body)) return false;
    const ctes = new Map(known);
    for (const item of children(child(body, "withClause"), "ctes")) {
      const cte = child(item, "CommonTableExpr");
      const query = child(cte, "ctequery");
      const name = text(cte, "ctename");
      ctes.set(name, false);
      if (query) ctes.set(name, this.visit(query, parent, ctes));
    }
    if (type === "InsertStmt") return this.#visitInsert(body, parent, ctes);
    if (type === "SelectStmt" || type === "UpdateStmt" || type === "DeleteStmt")
      return this.#visitBlock(body, parent, ctes);
    return false;
  }

  #visitInsert(body: Tree, parent: Scope | undefined, ctes: Ctes): boolean {
    const target = this.#tableSource(child(body, "relation"), new Map());
    const columns = children(body, "cols").map((column) => text(child(column, "ResTarget"), "name"));
    target.scoped = target.owned && TENANT_COLUMNS.every((name) => columns.includes(name));
    const query = child(body, "selectStmt");
    if (query) this.visit(query, parent, ctes);
    const scope = { sources: [target], parent };
    this.#report(scope);
    for (const part of [body["onConflictClause"], body["returningClause"]]) this.#visitSubqueries(part, scope, ctes);
    return target.scoped;
  }

  #visitBlock(body: Tree, parent: Scope | undefined, ctes: Ctes): boolean {
    const [left, right] = [child(body, "larg"), child(body, "rarg")];
    if (left && right) {
      const both = [left, right].map((part) => this.visit({ SelectStmt: part }, parent, ctes));
      return both.every(Boolean);
    }
    const scope: Scope = { sources: [], parent };
    const conditions: Tree[] = [];
    const relation = child(body, "relation");
    if (relation) scope.sources.push(this.#tableSource(relation, new Map()));
    for (const item of [...children(body, "fromClause"), ...children(body, "usingClause")]) {
      this.#addSource(item, scope, conditions, ctes);
    }
    const where = child(body, "whereClause");
    if (where) conditions.push(where);

    const { withClause: _ctes, fromClause, usingClause, ...expressions } = body;
    // Each round may show that a subquery, and with it what is joined to it, holds one tenant's rows.
    const reporting = this.#reporting;
    this.#reporting = false;
    for (let round = 0; round < 3; round++) {
      this.#solve(scope, conditions, ctes);
      for (const source of scope.sources) if (source.query) source.scoped ||= this.visit(source.query, scope, ctes);
    }
    this.#reporting = reporting;
    for (const source of scope.sources) if (source.query) this.visit(source.query, scope, ctes);
    this.#visitSubqueries([expressions, conditions], scope, ctes);
    this.#visitSubqueries(
      [...children(body, "fromClause"), ...children(body, "usingClause")].filter((item) => "RangeFunction" in item),
      scope,
      ctes,
    );
    this.#report(scope);
    return scope.sources.some(({ scoped }) => scoped) && scope.sources.every(({ owned, scoped }) => scoped || !owned);
  }

  #tableSource(range: Tree | undefined, ctes: Ctes): Source {
    const table = text(range, "relname");
    const cte = ctes.get(table);
    const name = text(child(range, "alias"), "aliasname") || table;
    return {
      name,
      table,
      columns: cte === undefined ? this.#tables.get(table) : undefined,
      owned: cte === undefined && this.#owned.has(table),
      scoped: cte ?? false,
      bound: new Set(),
    };
  }

  #addSource(item: Tree, scope: Scope, conditions: Tree[], ctes: Ctes): void {
    const [[type, body] = ["", undefined]] = Object.entries(item);
    if (!isTree(body)) return;
    if (type === "RangeVar") scope.sources.push(this.#tableSource(body, ctes));
    else if (type === "JoinExpr") {
      for (const side of ["larg", "rarg"]) {
        const part = child(body, side);
        if (part) this.#addSource(part, scope, conditions, ctes);
      }
      const on = child(body, "quals");
      if (on) conditions.push(on);
    } else {
      const query = child(body, "subquery");
      scope.sources.push({
        name: text(child(body, "alias"), "aliasname"),
        table: "",
        columns: undefined,
        owned: false,
        scoped: false,
        bound: new Set(),
        ...(query ? { query } : {}),
      });
    }
  }

  /** Finds out which sources are scoped: by their own tenant columns, or by a key they share with a scoped source. */
  #solve(scope: Scope, conditions: readonly Tree[], ctes: Ctes): void {
    const facts = conditions.flatMap(conjuncts);
    for (let changed = true; changed; ) {
      const before = scope.sources.filter(({ scoped }) => scoped).length;
      for (const fact of facts) {
        for (const [left, right] of equalities(fact)) {
          this.#learn(scope, left, right);
          this.#learn(scope, right, left);
        }
        this.#learnMembership(scope, fact, ctes);
      }
      changed = scope.sources.filter(({ scoped }) => scoped).length !== before;
    }
  }

  #learn(scope: Scope, left: Tree, right: Tree): void {
    const own = findColumn(left, scope);
    if (!own || !scope.sources.includes(own.source)) return;
    const other = findColumn(right, scope);
    const { source, column } = own;
    if ((TENANT_COLUMNS as readonly string[]).includes(column)) {
      if (!other || other.source.scoped) source.bound.add(column);
      if (TENANT_COLUMNS.every((name) => source.bound.has(name))) source.scoped = true;
    } else if (other?.source.scoped && isKey(column) && isKey(other.column)) source.scoped = true;
  }

  /** `key in (select …)` of one tenant's rows. */
  #learnMembership(scope: Scope, fact: Tree, ctes: Ctes): void {
    const link = child(fact, "SubLink");
    if (text(link, "subLinkType") !== "ANY_SUBLINK") return;
    const test = child(link, "testexpr");
    const query = child(link, "subselect");
    const own = test && findColumn(test, scope);
    if (!own || !query || !isKey(own.column) || !scope.sources.includes(own.source)) return;
    if (this.visit(query, scope, ctes)) own.source.scoped = true;
  }

  #visitSubqueries(part: unknown, scope: Scope, ctes: Ctes): void {
    if (Array.isArray(part)) for (const item of part) this.#visitSubqueries(item, scope, ctes);
    if (!isTree(part)) return;
    const query = child(child(part, "SubLink"), "subselect");
    if (query) this.visit(query, scope, ctes);
    else for (const value of Object.values(part)) this.#visitSubqueries(value, scope, ctes);
  }

  #report({ sources }: Scope): void {
    if (!this.#reporting) return;
    for (const { owned, scoped, table } of sources) if (owned && !scoped) this.unscoped.add(table);
  }
}

/** The conditions that all have to hold. */
function conjuncts(condition: Tree): Tree[] {
  const all = child(condition, "BoolExpr");
  return text(all, "boolop") === "AND_EXPR" ? children(all, "args").flatMap(conjuncts) : [condition];
}

function equalities(condition: Tree): [Tree, Tree][] {
  const comparison = child(condition, "A_Expr");
  const [left, right] = [child(comparison, "lexpr"), child(comparison, "rexpr")];
  const operator = text(child(children(comparison, "name")[0], "String"), "sval");
  if (text(comparison, "kind") !== "AEXPR_OP" || operator !== "=" || !left || !right) return [];
  const rows = [left, right].map((side) => children(child(side, "RowExpr"), "args"));
  const [lefts = [], rights = []] = rows;
  if (lefts.length === 0 || lefts.length !== rights.length) return [[left, right]];
  return lefts.flatMap((item, i): [Tree, Tree][] => {
    const other = rights[i];
    return other ? [[item, other]] : [];
  });
}

/** The source and the name of a column; undefined for any other expression. */
function findColumn(node: Tree, scope: Scope): { source: Source; column: string } | undefined {
  const cast = child(child(node, "TypeCast"), "arg");
  if (cast) return findColumn(cast, scope);
  const names = children(child(node, "ColumnRef"), "fields").map((field) => text(child(field, "String"), "sval"));
  const column = names.at(-1);
  if (!column) return undefined;
  for (let at: Scope | undefined = scope; at; at = at.parent) {
    const { sources } = at;
    const source =
      names.length > 1
        ? sources.find(({ name }) => name === names[0])
        : (sources.find(({ columns }) => columns?.has(column)) ?? sources.find(({ columns }) => columns === undefined));
    if (source) return { source, column };
  }
  return undefined;
}

/**
 * The tables of tenants that a statement reads or changes without keeping to one tenant. A statement keeps to one when
 * both tenant columns of the table are compared with a value, or a key joins the table to rows of which that holds; an
 * insert, when it lists both columns.
 * @throws {Error} for a statement that Postgres does not understand
 */
export async function unscopedTables(statement: string, tables: Columns): Promise<string[]> {
  await loadModule();
  const finder = new Finder(tables);
  for (const { stmt } of parseSync(statement).stmts ?? []) if (isTree(stmt)) finder.visit(stmt);
  return [...finder.unscoped].sort();
}
