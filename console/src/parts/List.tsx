import type { ReactNode } from "react";

export interface Column<Row> {
  title: string;
  cell: (row: Row) => ReactNode;
  /** Numbers stand at the right, under each other. */
  isNumber?: boolean;
}

interface ListProps<Row> {
  rows: readonly Row[];
  keyOf: (row: Row) => string;
  /** The first names the row. */
  columns: readonly [Column<Row>, ...Column<Row>[]];
}

export function List<Row>({ rows, keyOf, columns }: ListProps<Row>) {
  const [name, ...others] = columns;
  return (
    <table className="list">
      <thead>
        <tr>
          {columns.map((column) => (
            <th key={column.title} scope="col" className={classOf(column)}>
              {column.title}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {rows.map((row) => (
          <tr key={keyOf(row)}>
            <th scope="row">{name.cell(row)}</th>
            {others.map((column) => (
              <td key={column.title} className={classOf(column)}>
                {column.cell(row)}
              </td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function classOf(column: { isNumber?: boolean }): string | undefined {
  return column.isNumber ? "number" : undefined;
}
